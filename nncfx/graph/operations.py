"""The parts of a graph: tensors as shape and dtype, operations, edges."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from typing_extensions import override

INPUT_FUNCTION: Final = "nncf_model_input"
OUTPUT_FUNCTION: Final = "nncf_model_output"
STRIDED: Final = "strided"
"""The layout of a dense tensor."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Shape, dtype and layout of a traced tensor.

    Attributes:
        shape: The extents, as traced; `()` for a scalar.
        dtype: The dtype by its torch name without the prefix, for instance `"float32"`.
        layout: The layout, named likewise; layouts other than `"strided"` are sparse.
    """

    shape: tuple[int, ...]
    dtype: str
    layout: str = field(default=STRIDED, repr=False)

    @property
    def elements(self) -> int:
        """The number of elements; 1 for a scalar, 0 if an extent is 0.

        >>> TensorInfo((2, 3), "float32").elements
        6
        """
        count = 1
        for extent in self.shape:
            count *= extent
        return count


@dataclass(frozen=True, slots=True, eq=False)
class OwnParameters(Mapping[int, str]):
    """Dotted names of one module's parameters by input port; equal to a dict of the same items.

    Uses a quarter of the memory of a dict with its strings, since layers of a kind share `names`;
    a graph holds one such mapping per operation.

    Attributes:
        module: Dotted name of the module; "" is the root.
        names: Pairs of port and name in the module, sorted by port.

    >>> OwnParameters("fc", ((1, "weight"),))
    {1: 'fc.weight'}
    """

    module: str
    names: tuple[tuple[int, str], ...]

    @override
    def __getitem__(self, port: int) -> str:
        for known, name in self.names:
            if known == port:
                return f"{self.module}.{name}" if self.module else name
        raise KeyError(port)

    @override
    def __iter__(self) -> Iterator[int]:
        return (port for port, _ in self.names)

    @override
    def __len__(self) -> int:
        return len(self.names)

    @override
    def __repr__(self) -> str:
        return repr(dict(self))


NO_PARAMETERS: Final = OwnParameters("", ())


class Operation(NamedTuple):
    """One traced call of a torch function: a node of the graph.

    Attributes:
        address: `scope/function_callnumber`, unique in the graph.
        function: The function's name in NNCF's spelling, for instance `linear` or `__iadd__`.
        call_number: Number of the call of `function` in `scope` within one forward, from 0.
        index: Position in execution order, from 0.
        module: Dotted name of the innermost registered module that makes the call; "" is the root.
        module_type: Class name of that module.
        inputs: The input tensors, by port. Ports count the tensors among the positional
            arguments, then among the keyword arguments, nested tensors in order. An entry is
            `None` if an optional tensor was not given.
        outputs: The output tensors, by port.
        parameters: Dotted parameter or buffer names by input port; a tensor of `module` has the
            name by which `module` reads it.
        equation: The equation of an `einsum`, as written; "" for any other function.
        fill: The value with which a `pad` fills; 0 for any other function.
        is_statement: Whether the code drops the result, a tensor that the call was given, as in
            `x.relu_()` on a line of its own. What reads `x` next reads no result of a hook.
    """

    address: str
    function: str
    call_number: int
    index: int  # type: ignore[assignment]  # not the method of tuples
    module: str
    module_type: str
    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo, ...]
    parameters: Mapping[int, str] = NO_PARAMETERS
    equation: str = ""
    fill: float = 0.0
    is_statement: bool = False

    @override
    def __hash__(self) -> int:
        return hash(self.address)

    @property
    def is_assignment(self) -> bool:
        """Whether readers read the tensor that it changes, which no hook on it can replace."""
        return self.is_statement or self.function == "__setitem__"

    @property
    def scope(self) -> str:
        """Place in the module tree, for instance `ResNet/Sequential[layer1]/BasicBlock[0]`."""
        return self.address.rpartition("/")[0]


class Edge(NamedTuple):
    """A tensor that flows from an output port to an input port.

    Attributes:
        source: Address of the producer (an operation or a graph input).
        source_port: Output port of the producer.
        target: Address of the consumer (an operation or a graph output).
        target_port: Input port of the consumer.
        tensor: The tensor's shape, dtype and layout.
    """

    source: str
    source_port: int
    target: str
    target_port: int
    tensor: TensorInfo

"""What a graph is made of: tensors by shape and dtype, operations, edges."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from typing_extensions import override

__all__ = ["INPUT_FUNCTION", "OUTPUT_FUNCTION", "Edge", "Operation", "TensorInfo"]

INPUT_FUNCTION: Final = "nncf_model_input"
OUTPUT_FUNCTION: Final = "nncf_model_output"

_NO_PARAMETERS: Final[Mapping[int, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Shape and dtype of a traced tensor.

    Attributes:
        shape: The extents, as traced; `()` for a scalar.
        dtype: The dtype by its torch name without the prefix, for instance `"float32"`.
    """

    shape: tuple[int, ...]
    dtype: str

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


@dataclass(frozen=True, slots=True)
class Operation:
    """One traced call of a torch function: a node of the graph.

    Attributes:
        address: `scope/function_callnumber`, unique in the graph.
        scope: Place in the module tree, for instance `ResNet/Sequential[layer1]/BasicBlock[0]`.
        function: The function's name in NNCF's spelling, for instance `conv2d` or `__iadd__`.
        call_number: Counts calls of `function` in `scope` within one forward, from 0.
        index: Position in execution order, from 0.
        module: Dotted name of the innermost registered module that makes the call; "" is the root.
        module_type: Class name of that module.
        inputs: The input tensors, by port. Ports count the tensors among the positional
            arguments, then among the keyword arguments, nested ones in order. The entry is `None`
            where an optional tensor was not given.
        outputs: The output tensors, by port.
        parameters: Input port to dotted parameter or buffer name, as `module` reads it where it
            is `module`'s own.
        equation: What an `einsum` computes, as written; "" for any other function.
    """

    address: str
    scope: str
    function: str
    call_number: int
    index: int
    module: str
    module_type: str
    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo, ...]
    parameters: Mapping[int, str] = field(default_factory=lambda: _NO_PARAMETERS, hash=False)
    equation: str = ""

    @override
    def __reduce__(self) -> tuple[object, ...]:
        # a mapping proxy does not pickle; the plain dict does
        values = (
            *(self.address, self.scope, self.function, self.call_number, self.index),
            *(self.module, self.module_type, self.inputs, self.outputs),
        )
        return (Operation, (*values, dict(self.parameters), self.equation))


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor that flows from an output port to an input port.

    Attributes:
        source: Address of the producer (an operation or a graph input).
        source_port: Output port of the producer.
        target: Address of the consumer (an operation or a graph output).
        target_port: Input port of the consumer.
        tensor: What flows.
    """

    source: str
    source_port: int
    target: str
    target_port: int
    tensor: TensorInfo

"""Follow tensors from the calls that produce them to the calls that read them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import torch
from torch import nn

from nncfx.graph import Edge, NNCFGraph, Operation, TensorInfo, input_address, output_address
from nncfx.graph.operations import NO_PARAMETERS, OwnParameters
from nncfx.tracing.calls.tensor_table import TensorTable
from nncfx.tracing.calls.tensors import describe, own_tensors


class _Produced(NamedTuple):
    """The data is an output of a node."""

    address: str
    port: int


@dataclass(frozen=True)
class _Stored:
    """The data is a parameter or buffer; holds its name in each of its modules."""

    names: dict[str, str]

    def dotted(self, reader: str | None = None) -> str:
        """Return the dotted name in the module `reader`, or else the first name."""
        module = reader if reader in self.names else next(iter(self.names))
        name = self.names[module]
        return f"{module}.{name}" if module else name


Origin: TypeAlias = _Produced | _Stored


class Dataflow:
    """The graph under construction.

    Tensors are keyed weakly, so a trace does not keep activations alive.

    Attributes:
        folded: Dotted names of the parameters that the forward writes to.
    """

    def __init__(self, modules: Iterable[tuple[str, nn.Module]]) -> None:
        """Start with the parameters and buffers of `modules`, listed under every name."""
        self._origin = TensorTable[Origin]()
        self._operations: list[Operation] = []
        self._edges: list[Edge] = []
        self._inputs: list[TensorInfo] = []
        self._outputs: list[TensorInfo] = []
        self._ports: dict[tuple[tuple[int, str], ...], tuple[tuple[int, str], ...]] = {}
        self.folded: set[str] = set()
        self._stored: dict[int, _Stored] = {}
        for module_name, module in modules:
            for name, tensor in own_tensors(module).items():
                stored = self._stored.setdefault(id(tensor), _Stored({}))
                stored.names.setdefault(module_name, name)
                self._origin[tensor] = stored

    @cached_property
    def parameter_names(self) -> Mapping[int, str]:
        """The first dotted name of every parameter and buffer, by `id`."""
        return {key: stored.dotted() for key, stored in self._stored.items()}

    @property
    def operation_count(self) -> int:
        """The number of operations so far."""
        return len(self._operations)

    def add_input(self, tensor: torch.Tensor) -> None:
        """Add the model's next input."""
        self._origin[tensor] = _Produced(input_address(len(self._inputs)), 0)
        self._inputs.append(describe(tensor))

    def add_output(self, tensor: torch.Tensor) -> None:
        """Add the model's next output and the edge to it."""
        info = describe(tensor)
        self._connect(output_address(len(self._outputs)), self.origins([tensor]), [info])
        self._outputs.append(info)

    def add_operation(
        self,
        operation: Operation,
        origins: Sequence[Origin | None],
        inputs: Sequence[torch.Tensor],
        produced: Sequence[torch.Tensor],
    ) -> None:
        """Add `operation`, the edges from the `origins` of its inputs, and its results."""
        self._operations.append(operation)
        self._connect(operation.address, origins, operation.inputs)
        changed = {id(tensor) for tensor in inputs}
        for port, tensor in enumerate(produced):
            origin = _Produced(operation.address, port)
            self._origin[tensor] = origin
            base = tensor._base  # noqa: SLF001 (the documented way to find what a view shows)
            if id(tensor) in changed and base is not None:
                # changed in place through a view, so readers of the base read this result
                self._origin[base] = origin

    def pass_on(self, tensor: torch.Tensor, produced: Iterable[torch.Tensor]) -> None:
        """Record that `produced` have the data of `tensor`."""
        origin = self._origin.get(tensor)
        if origin is not None:
            for one in produced:
                self._origin[one] = origin

    def set_data(self, tensor: torch.Tensor, data: torch.Tensor) -> None:
        """Record that `data` was written to `tensor`, which is a computed tensor from now on."""
        self.pass_on(data, [tensor])
        stored = self._stored.get(id(tensor))
        if stored is not None:
            self.folded.add(stored.dotted())

    def origins(self, tensors: Sequence[torch.Tensor]) -> list[Origin | None]:
        """Return where the data of `tensors` comes from; None for data from outside the model."""
        return [self._origin.get(one) for one in tensors]

    def parameters_of(self, origins: Sequence[Origin | None], reader: str) -> Mapping[int, str]:
        """Return the names of the parameters and buffers among `origins`, by port.

        A tensor with several names gets its name in the module `reader`, if it has one.
        """
        stored = [(port, one) for port, one in enumerate(origins) if isinstance(one, _Stored)]
        if not stored:
            return NO_PARAMETERS
        if all(reader in one.names for _, one in stored):
            ports = tuple([(port, one.names[reader]) for port, one in stored])
            return OwnParameters(reader, self._ports.setdefault(ports, ports))
        return {port: one.dotted(reader) for port, one in stored}

    def graph(self) -> NNCFGraph:
        """Return the finished graph."""
        return NNCFGraph(
            operations=tuple(self._operations),
            edges=tuple(self._edges),
            inputs=tuple(self._inputs),
            outputs=tuple(self._outputs),
        )

    def _connect(
        self, address: str, origins: Sequence[Origin | None], infos: Sequence[TensorInfo | None]
    ) -> None:
        for port, (origin, info) in enumerate(zip(origins, infos, strict=True)):
            if isinstance(origin, _Produced) and info is not None:
                self._edges.append(Edge(origin.address, origin.port, address, port, info))

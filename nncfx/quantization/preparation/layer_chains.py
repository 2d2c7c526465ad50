"""Find layers and the layers that follow them, for all post-training methods."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

from nncfx.errors import ArgumentError, GraphError
from nncfx.graph import NNCFGraph, Operation
from nncfx.network import NNCFNetwork
from nncfx.operators import LINEAR_LAYERS, functions_of
from nncfx.quantization.placement.operands import operands_of
from nncfx.quantization.placement.transposed_weights import transposed_weights
from nncfx.tracing import ExampleInputs, trace

TransposedConv = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d

CONVOLUTIONS: Final = functions_of("conv", "conv_transpose")
"""The functions that convolve."""

_PRODUCTS: Final = LINEAR_LAYERS - {"linear"}


@dataclass(frozen=True)
class Layer:
    """A convolution or linear module that is called once and shares no parameters.

    Attributes:
        name: Dotted name of the module.
        module: The module.
        operation: Its call.
        port: The port of the layer's input.
        is_turned: Whether the columns of the weight are its outputs, as in `addmm`.
    """

    name: str
    module: nn.Module
    operation: Operation
    port: int = 0
    is_turned: bool = False

    @property
    def is_matrix(self) -> bool:
        """Whether it multiplies its input by a matrix; otherwise it is a convolution or norm."""
        return self.operation.function in LINEAR_LAYERS

    @property
    def groups(self) -> int:
        """The number of groups of a convolution; 1 for a linear layer."""
        return int(getattr(self.module, "groups", 1))

    @property
    def weight(self) -> nn.Parameter:
        """The parameter as stored, without hooks."""
        return self.parameter("weight")

    @property
    def rows(self) -> torch.Tensor:
        """A view of the stored weight with the outputs on axis 0; writes reach the weight."""
        weight = self.weight.detach()
        return weight.mT if self.is_turned else weight

    def take(self, rows: torch.Tensor) -> None:
        """Replace the weight by `rows`, with the outputs on axis 0, in its dtype and device."""
        rows = rows.to(self.weight)
        self.weight.data = rows.mT.contiguous() if self.is_turned else rows

    @property
    def bias(self) -> nn.Parameter | None:
        """The stored bias that the call reads, or `None`."""
        if f"{self.name}.bias".lstrip(".") not in self.operation.parameters.values():
            return None
        return self.module._parameters.get("bias")  # noqa: SLF001 (reads past the hooks)

    def parameter(self, name: str) -> nn.Parameter:
        """Return the parameter `name` as stored, without hooks."""
        stored = self.module._parameters.get(name)  # noqa: SLF001 (reads past the hooks)
        if stored is None:
            raise GraphError(f"'{self.name}' has no parameter '{name}'.")
        return stored


def find_layers(
    model: nn.Module, graph: NNCFGraph, functions: Collection[str] = (*CONVOLUTIONS, "linear")
) -> dict[str, Layer]:
    """Return the layers of `model` by the address of their call, in execution order.

    Calls whose weight is not the calling module's own `weight` are left out, and so are layers
    with empty weights or with parameters that are read more than once, because a change would
    affect other operations.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    found = _products(modules, graph) if _PRODUCTS & set(functions) else {}
    for one in graph.operations:
        own = {1: f"{one.module}.weight", 2: f"{one.module}.bias"}
        names = {port: name for port, name in one.parameters.items() if port in own}
        plain = all(own[port].lstrip(".") == name for port, name in names.items())
        if one.function in set(functions) - _PRODUCTS and 1 in names and plain:
            found[one.address] = Layer(one.module, modules[one.module], one)
    shared = shared_parameters(model, graph)
    return {
        one.address: layer
        for one in graph.operations
        if (layer := found.get(one.address)) is not None
        and layer.weight.numel()
        and shared.isdisjoint({_weight_of(one), *one.parameters.values()})
    }


def _products(modules: Mapping[str, nn.Module], graph: NNCFGraph) -> dict[str, Layer]:
    """Return the modules that multiply by a matrix that is their own weight."""
    transposed = transposed_weights(graph)
    turned = Counter(name for ports in transposed.values() for name in ports.values())
    found = {}
    for one in graph.operations:
        if one.function not in _PRODUCTS:
            continue
        operands = operands_of(one, transposed.get(one.address))
        name = _weight_of(one)
        is_own = list(operands.weights.values()) == [name] and turned[name] <= 1
        if is_own and operands.axis is not None and len(operands.activations) == 1:
            (port,) = operands.activations
            layer = Layer(one.module, modules[one.module], one, port, operands.axis == 1)
            found[one.address] = layer
    return found


def _weight_of(operation: Operation) -> str:
    return f"{operation.module}.weight".lstrip(".")


def shared_parameters(model: nn.Module, graph: NNCFGraph) -> frozenset[str]:
    """Return the names of parameters that are read more than once, under any of their names."""
    stored = dict(model.named_parameters(remove_duplicate=False))
    names = [
        name for one in graph.operations for name in one.parameters.values() if name in stored
    ]
    reads = Counter(id(stored[name]) for name in names)
    return frozenset(name for name in names if reads[id(stored[name])] > 1)


def graph_without_hooks(model: nn.Module, example_inputs: ExampleInputs) -> NNCFGraph:
    """Return the graph of a plain model, or of a wrapped model without hooks.

    Raises:
        ArgumentError: the model has hooks, which would not fit changed weights.
        TracingError: the model fails on the inputs.
    """
    if not isinstance(model, NNCFNetwork):
        return trace(model, example_inputs)
    if model.nncf.hooks:
        raise ArgumentError(
            f"The model has {len(model.nncf.hooks)} hooks, and what is to be done changes the "
            "weights that they act on. Do it before compressing, or to nncfx.strip(model)."
        )
    return model.nncf.graph


def readers(graph: NNCFGraph, address: str) -> Iterator[Operation | None]:
    """Yield the operations that read results of `address`; `None` is a model output."""
    for edge in graph.outgoing(address):
        yield graph.get(edge.target)


def reader_behind(
    graph: NNCFGraph, operation: Operation, transparent: Collection[str]
) -> Operation | None:
    """Return the only reader of `operation`, skipping `transparent` functions.

    The result is `None` if a tensor on the way has several readers, is a model output, or is not
    read as the first input.
    """
    while True:
        following = list(readers(graph, operation.address))
        reader = following[0] if len(following) == 1 else None
        if reader is None or graph.outgoing(operation.address)[0].target_port != 0:
            return None
        if reader.function not in transparent or not _keeps_channels(operation, reader):
            return reader
        operation = reader


def _keeps_channels(before: Operation, reader: Operation) -> bool:
    """Return whether `reader` keeps axis 1, or flattens all later axes into it."""
    shape, result = before.outputs[0].shape, reader.outputs[0].shape
    if reader.function not in {"view", "reshape", "flatten"}:
        return True
    size = torch.Size(shape[1:]).numel()
    return result[:1] == shape[:1] and result[1:] == (size,)

"""Matrices of experts, which lie in one parameter and are picked by index."""

from collections.abc import Mapping
from typing import Final

from nncfx.graph import NNCFGraph, Operation

__all__ = ["stacked_matrices"]

_PICKS: Final = "__getitem__"
_TURNS: Final = frozenset({"T", "mT", "swapaxes", "swapdims", "transpose"})
_GROUPED: Final = "_grouped_mm"
_PRODUCTS: Final = frozenset({"__matmul__", "bmm", "matmul", "mm"})
_RANK: Final = 3
_ROWS, _COLUMNS = 1, 2


def stacked_matrices(graph: NNCFGraph) -> Mapping[str, int]:
    """Return the parameters e x o x i or e x i x o that mixtures of experts pick matrices from.

    With each the axis along which the outputs of a matrix lie: 1 or 2. What is picked is
    multiplied right away or transposed before; other stacks are no experts.

    >>> import torch, nncfx
    >>> class Experts(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.up = torch.nn.Parameter(torch.ones(4, 8, 2))
    ...     def forward(self, x, chosen):
    ...         return torch.bmm(self.up[chosen], x)
    >>> inputs = (torch.ones(1, 2, 5), torch.tensor([3]))
    >>> stacked_matrices(nncfx.wrap(Experts(), inputs).nncf.graph)
    {'up': 1}
    """
    found: dict[str, int] = {}
    for operation in graph.operations:
        for port, name in operation.parameters.items():
            info = operation.inputs[port]
            if info is None or len(info.shape) != _RANK or name in found:
                continue
            axis = _output_axis(graph, operation, port, is_picked=False)
            if axis is not None:
                found[name] = axis
    return found


def _output_axis(
    graph: NNCFGraph, operation: Operation, port: int, *, is_picked: bool
) -> int | None:
    """Return the axis of the outputs in what `operation` reads at `port`; None if no matrix."""
    function = operation.function
    if function == _GROUPED:
        return _COLUMNS if port == 1 else None
    if is_picked and function == "linear":
        return _ROWS if port == 1 else None
    if is_picked and function in _PRODUCTS:
        return _COLUMNS if port == 1 else _ROWS
    if port != 0 or (function != _PICKS and function not in _TURNS):
        return None
    picks = is_picked or function == _PICKS
    readers = {edge.target: edge.target_port for edge in graph.outgoing(operation.address)}
    axes = [
        _output_axis(graph, reader, readers[reader.address], is_picked=picks)
        for reader in graph.operations
        if reader.address in readers
    ]
    axis = next((one for one in axes if one is not None), None)
    return axis if axis is None or function == _PICKS else _ROWS + _COLUMNS - axis

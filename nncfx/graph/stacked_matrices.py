"""Find the matrices of experts that are stacked in one parameter and picked by index."""

from collections.abc import Mapping
from typing import Final

from nncfx.graph.nncf_graph import NNCFGraph
from nncfx.graph.operations import Operation
from nncfx.operators import operator_of

_PICKS: Final = "__getitem__"
_TURNS: Final = frozenset({"T", "mT", "swapaxes", "swapdims", "transpose"})
_GROUPED: Final = "_grouped_mm"
_RANK: Final = 3
_ROWS, _COLUMNS = 1, 2


def stacked_matrices(graph: NNCFGraph) -> Mapping[str, int]:
    """Return the axis of the outputs of each parameter from which experts pick matrices.

    The shape is e x o x i (axis 1) or e x i x o (axis 2), for e experts with i inputs and o
    outputs each. A stack counts only if the picked matrices are multiplied directly, or
    transposed and then multiplied.

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

    def output_axis(operation: Operation, port: int, *, is_picked: bool) -> int | None:
        """Return the output axis of the stack read at `port`; None if it holds no matrices."""
        function = operation.function
        if not (port == 0 and (function == _PICKS or function in _TURNS)):
            return _axis_in_product(function, port, is_picked=is_picked)
        axes = [
            output_axis(reader, edge.target_port, is_picked=is_picked or function == _PICKS)
            for edge in graph.outgoing(operation.address)
            if (reader := graph.get(edge.target)) is not None
        ]
        axis = next((one for one in axes if one is not None), None)
        return axis if axis is None or function == _PICKS else _ROWS + _COLUMNS - axis

    for operation in graph.operations:
        for port, name in operation.parameters.items():
            info = operation.inputs[port]
            if info is None or len(info.shape) != _RANK or name in found:
                continue
            axis = output_axis(operation, port, is_picked=False)
            if axis is not None:
                found[name] = axis
    return found


def _axis_in_product(function: str, port: int, *, is_picked: bool) -> int | None:
    """Return the output axis of the matrices a product reads; None if it is no such product."""
    if function == _GROUPED:
        return _COLUMNS if port == 1 else None
    row = operator_of(function)
    if not is_picked or row.work != "contraction":
        return None
    return {"weight": _ROWS, "left": _ROWS, "right": _COLUMNS}.get(row.role(port))

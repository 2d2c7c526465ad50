"""Channel rules of recurrent layers: their hidden units are channels."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from nncfx.graph.channels import Role
from nncfx.graph.union_find import Ids
from nncfx.tracing.channel_calls import argument, place_of, unknown
from nncfx.tracing.channel_state import ChannelState
from nncfx.tracing.tensors import tensors_in
from nncfx.tracing.watching import TracedCall

__all__ = ["recurrent"]


def recurrent(gates: int) -> Callable[[ChannelState, TracedCall], None]:
    """Return the rule of a recurrent layer whose weights have `gates` blocks of rows.

    A hidden unit is a row of every gate, a column of the recurrent weight and of what reads the
    layer. Layers and directions of one module have one `hidden_size`, so their units go together.
    """

    def follow(state: ChannelState, call: TracedCall) -> None:
        weights = argument(call, 2, "params")
        is_padded = isinstance(weights, Sequence) and len(call.args) > 8  # noqa: PLR2004
        names = [state.whole_parameter(weight) for weight in weights] if is_padded else [None]
        if None in names:
            return unknown(state, call, "has weights that are no parameters")
        _, _, _, has_biases, layers, _, _, bidirectional, _ = call.args[:9]
        directions, per_cell = 1 + bidirectional, 2 + 2 * has_biases
        if len(names) != layers * directions * per_cell:
            return unknown(state, call, "projects its hidden units")
        return _follow(state, call, (gates, directions, per_cell))

    return follow


def _follow(state: ChannelState, call: TracedCall, counts: tuple[int, int, int]) -> None:
    gates, directions, per_cell = counts
    data, hidden, weights = call.args[:3]
    place = place_of(call)
    read: Ids | None = state.sequence(state.ids(data), -1, place)
    if read is None:
        return unknown(state, call, "reads channels from several axes")
    state.ledger.count(call.module, "input_size", read)
    cells = [weights[n : n + per_cell] for n in range(0, len(weights), per_cell)]
    units: list[Ids] = []
    for number, cell in enumerate(cells):
        if number and number % directions == 0:
            read = np.concatenate(units[-directions:])
        size = cell[0].shape[0] // gates
        ids = state.ledger.create(size)
        units.append(ids)
        _cell(state, cell, np.tile(ids, gates), (read, ids))
        state.ledger.count(call.module, "hidden_size", ids)
    last = units[-directions:]
    output, *states = call.produced
    state.lay(output, np.concatenate(last), -1)
    rows = torch.from_numpy(np.stack(units))
    for tensor in states:
        state.set_grid(tensor, _of_states(rows, tensor))
    for tensor in tensors_in(hidden):
        state.merge_grids([state.ids(tensor), _of_states(rows, tensor)], tensor.shape, place)
    return None


def _of_states(rows: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return the ids of a state, first or last: one row of units for each cell."""
    across = [len(rows), *([1] * (tensor.dim() - 2)), rows.shape[1]]
    return rows.reshape(across).expand(tensor.shape)


def _cell(
    state: ChannelState,
    cell: Sequence[torch.Tensor],
    rows: Ids,
    columns: tuple[Ids, Ids],
) -> None:
    for weight, read in zip(cell[:2], columns, strict=True):
        name = str(state.whole_parameter(weight))
        state.ledger.carry(name, 0, rows, Role.PRODUCER)
        state.ledger.carry(name, 1, read, Role.CONSUMER)
    for bias in cell[2:]:
        state.ledger.carry(str(state.whole_parameter(bias)), 0, rows, Role.PRODUCER)

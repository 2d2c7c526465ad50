"""Channel rules of recurrent layers, of their cells, and of packed sequences."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from nncfx.channels.ids import along, varying_axes
from nncfx.channels.rules.calls import channel_rule, place_of, unknown
from nncfx.channels.state import ChannelState
from nncfx.graph.channels import Role
from nncfx.graph.union_find import Ids
from nncfx.tracing.calls.tensors import tensors_in
from nncfx.tracing.record.function_mode import TracedCall

_ARGUMENTS: Final = 9
"""Number of arguments of `torch.lstm`, `gru` and similar, with or without packed sequences."""


def recurrent(gates: int, state: ChannelState, call: TracedCall) -> None:
    """Follow a recurrent layer whose weights have `gates` blocks of rows.

    A hidden unit is a row of every gate, and a column of the recurrent weight and of the layers
    that read it. Layers and directions of a module share one `hidden_size`, so their units are
    tied.
    """
    # for packed sequences the second argument is the batch size of each step
    args = call.args
    is_packed = len(args) == _ARGUMENTS and not isinstance(args[3], bool)
    data, hidden, weights, has_biases, layers, *_ = (args[0], *args[1 + is_packed :])
    names = [state.whole_parameter(weight) for weight in weights]
    if len(args) != _ARGUMENTS or None in names:
        return unknown(state, call, "has weights that are not parameters")
    directions, per_cell = 1 + args[7 + is_packed], 2 + 2 * has_biases
    if len(names) != layers * directions * per_cell:
        return unknown(state, call, "projects its hidden units")
    cells = [weights[n : n + per_cell] for n in range(0, len(weights), per_cell)]
    return _follow(state, call, (data, hidden, cells), (gates, directions))


def recurrent_cell(gates: int, state: ChannelState, call: TracedCall) -> None:
    """Follow one step of a recurrent layer; all steps share their units."""
    data, hidden, *given = call.args
    weights = [one for one in given if one is not None]
    if None in [state.whole_parameter(weight) for weight in weights]:
        return unknown(state, call, "has weights that are not parameters")
    place = place_of(call)
    read = state.sequence(state.ids(data), -1, place)
    if read is None:
        return unknown(state, call, "reads channels from several axes")
    ids = state.ledger.create(weights[0].shape[0] // gates)
    _cell(state, weights, np.tile(ids, gates), (read, ids))
    state.ledger.count(call.module, "input_size", read)
    state.ledger.count(call.module, "hidden_size", ids)
    for tensor in tensors_in(hidden):
        units = along(ids, -1, tensor.shape)
        state.merge_grids([state.ids(tensor), units], tensor.shape, place)
    for tensor in call.produced:
        state.lay(tensor, ids, -1)
    return None


@channel_rule("packed")
def packed(state: ChannelState, call: TracedCall) -> None:
    """Follow the packing of sequences, which merges batch and steps into one axis."""
    _over_time(state, call, 2)


@channel_rule("padded")
def padded(state: ChannelState, call: TracedCall) -> None:
    """Follow the padding of packed sequences, the inverse of `packed`."""
    _over_time(state, call, 1)


@channel_rule("joined")
def joined(state: ChannelState, call: TracedCall) -> None:
    """Follow `pad_sequence`, which ties the channels of several sequences."""
    parts = [state.ids(one) for one in call.args[0]]
    if any(0 in varying_axes(one) for one in parts):
        return unknown(state, call, "takes channels for steps")
    shape = call.result.shape[2:]
    merged = state.merge_grids([one[0] for one in parts], shape, place_of(call))
    return state.set_grid(call.result, merged.expand(call.result.shape))


def _over_time(state: ChannelState, call: TracedCall, axes: int) -> None:
    grid, result = state.ids(call.args[0]), call.produced[0]
    if any(axis < axes for axis in varying_axes(grid)):
        return unknown(state, call, "takes channels for steps")
    return state.set_grid(result, grid[(0,) * axes].expand(result.shape))


def _follow(
    state: ChannelState,
    call: TracedCall,
    given: tuple[torch.Tensor, Any, Sequence[Sequence[torch.Tensor]]],
    counts: tuple[int, int],
) -> None:
    (data, hidden, cells), (gates, directions) = given, counts
    place = place_of(call)
    read: Ids | None = state.sequence(state.ids(data), -1, place)
    if read is None:
        return unknown(state, call, "reads channels from several axes")
    state.ledger.count(call.module, "input_size", read)
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
    """Return the ids of an initial or final state, which has one row of units per cell."""
    across = [len(rows), *([1] * (tensor.dim() - 2)), rows.shape[1]]
    return rows.reshape(across).expand(tensor.shape)


def _cell(
    state: ChannelState, cell: Sequence[torch.Tensor], rows: Ids, columns: tuple[Ids, Ids]
) -> None:
    for weight, read in zip(cell[:2], columns, strict=True):
        name = str(state.whole_parameter(weight))
        state.ledger.carry(name, 0, rows, Role.PRODUCER)
        state.ledger.carry(name, 1, read, Role.CONSUMER)
    for bias in cell[2:]:
        state.ledger.carry(str(state.whole_parameter(bias)), 0, rows, Role.PRODUCER)


for _name, _gates in {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}.items():
    channel_rule(_name)(partial(recurrent, _gates))
    channel_rule(f"{_name}_cell")(partial(recurrent_cell, _gates))

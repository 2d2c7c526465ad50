"""Channel rules of functions that do not mix channels, of elements, windows or single axes."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import torch

from nncfx.channels.ids import along, compact, no_channels, sequence, spread, varying_axes
from nncfx.channels.masked_norms import AVERAGES, LAYER_NORMS
from nncfx.channels.rules.calls import (
    argument,
    channel_rule,
    is_in_torch_attention,
    place_of,
    unknown,
)
from nncfx.channels.rules.sizes import note_literal, note_width
from nncfx.channels.source import Source
from nncfx.channels.state import ChannelState, Split
from nncfx.graph.channels import Role
from nncfx.tracing.calls.symbolic_sizes import NamedInteger, WeightSize
from nncfx.tracing.calls.tensors import replaced
from nncfx.tracing.record.function_mode import TracedCall

_NORMALISES: Final = "normalises over its channels"
_CHANNEL_AXIS: Final = 1
_ORDER_FIRST: Final = frozenset(["norm", "renorm"])
"""Functions whose second argument is the order of a norm and the third the axis."""


@channel_rule("pointwise")
def pointwise(state: ChannelState, call: TracedCall) -> None:
    """Follow an elementwise function of one or several operands."""
    operands, results = call.operands, call.produced
    if len(operands) == len(results) == 1 and operands[0].shape == results[0].shape:
        grid = state.grid(operands[0])
        if grid is not None:  # the case of nearly all activation functions
            return state.keep_grid(results[0], grid)
    shape = np.broadcast_shapes(*(tensor.shape for tensor in operands))
    if any(tensor.shape != shape for tensor in results):
        return unknown(state, call)
    if all(state.grid(tensor) is None for tensor in operands):
        return _parameters_only(state, call, operands)
    merged = state.merge(operands, shape, place_of(call))
    for tensor in results:
        state.keep_grid(tensor, merged)
    return None


def _parameters_only(
    state: ChannelState, call: TracedCall, operands: Sequence[torch.Tensor]
) -> None:
    sources = [source for t in operands if (source := state.source(t)) is not None]
    if len(sources) > 1 or sources[0].elements.shape != call.result.shape:
        return unknown(state, call)
    if not _keeps_zero(state, call):
        reason = (
            f"'{place_of(call)}' turns the zeros of '{sources[0].parameter}' into other numbers"
        )
        state.ledger.fix_read_by(sources[0].parameter, reason)
    return state.set_source(call.result, sources[0])


def _keeps_zero(state: ChannelState, call: TracedCall) -> bool:
    """Return whether a function of one parameter keeps zeros; constants are replaced by ones."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        value = int(state.source(tensor) is None)
        return torch.full((1,) * tensor.dim(), value, dtype=tensor.dtype, device="cpu")

    return not call.func(*replaced(call.args, change), **replaced(call.kwargs, change)).any()


@channel_rule("window")
def window(state: ChannelState, call: TracedCall) -> None:
    """Follow a function of windows of pixels per channel (pooling, resizing)."""
    data = call.operands[0]
    source = state.source(data)
    before = state.ids(data) if source is None else _of_positions(state, source)
    for tensor in call.produced:
        grid = spread(before, tensor.shape)
        if grid is None:
            return unknown(state, call, "moves a window over its channels")
        state.set_grid(tensor, grid)
    return None


def _of_positions(state: ChannelState, source: Source) -> torch.Tensor:
    """Return the ids of a resized parameter, such as a grid of positions.

    They are the entries of the parameter's axis that lies along the tensor's channel axis only.
    """
    coordinates = np.unravel_index(source.elements.numpy(), source.shape)
    for axis, places in enumerate(coordinates):
        grid = compact(torch.from_numpy(np.ascontiguousarray(places)))
        order = sequence(grid, _CHANNEL_AXIS)
        if varying_axes(grid) == (_CHANNEL_AXIS,) and order is not None:
            size = source.shape[axis]
            ids = state.ledger.carry_along(source.parameter, axis, size, Role.FOLLOWER)
            return along(ids[order], _CHANNEL_AXIS, source.elements.shape)
    return no_channels(source.elements.shape)


@channel_rule("along_axis")
def along_axis(state: ChannelState, call: TracedCall) -> None:
    """Follow a function along one axis that keeps the shape (softmax, cumulative sum, sort)."""
    _along(state, call, argument(call, 1, "dim", -1))


@channel_rule("unit_length")
def unit_length(state: ChannelState, call: TracedCall) -> None:
    """Follow `normalize`, which divides vectors along an axis by their length."""
    _along(state, call, argument(call, 2, "dim", 1))


def _along(state: ChannelState, call: TracedCall, axis: object) -> None:
    data = call.args[0]
    grid = state.ids(data)
    if state.source(data) is not None or not isinstance(axis, int):
        return unknown(state, call)
    grid = state.mix(grid, [axis % grid.dim()], (place_of(call), "computes across its channels"))
    for tensor in call.produced:
        state.set_grid(tensor, grid)
    return None


@channel_rule("reduction")
def reduction(state: ChannelState, call: TracedCall) -> None:
    """Follow a function that reduces axes (mean, sum, maximum, norm)."""
    operands = call.operands
    if len(operands) > 1:
        return pointwise(state, call)
    name = "axis" if "axis" in call.kwargs else "dim"
    position = 2 if call.func.__name__ in _ORDER_FIRST else 1
    given = argument(call, position, name)
    grid = state.ids(operands[0])
    if state.source(operands[0]) is not None or isinstance(given, torch.dtype):
        return unknown(state, call)
    given = (given,) if isinstance(given, int) else given
    axes = {axis % grid.dim() for axis in given} if given else set(range(grid.dim()))
    if living(state, call, grid, axes):
        return state.set_grid(call.result, no_channels(call.result.shape))
    if is_in_torch_attention(call):
        # the mean weights over all heads are always computed, but rarely used
        return state.fix_if_read(call.result, grid, f"'{place_of(call)}' averages over all heads")
    rest = state.mix(grid, axes, (place_of(call), "computes across its channels"))
    if axes.intersection(varying_axes(rest)):
        return unknown(state, call, "computes across its channels")
    for axis in axes:
        rest = rest.narrow(axis, 0, 1)
    for tensor in call.produced:
        state.set_grid(tensor, rest.reshape(tensor.shape))
    return None


@channel_rule("per_channel")
def per_channel(state: ChannelState, call: TracedCall) -> None:
    """Follow a function with one parameter per channel (batch and instance norm, PReLU)."""
    data, *others = call.operands
    grid = state.ids(data)
    ids = sequence(grid, _CHANNEL_AXIS) if varying_axes(grid) == (_CHANNEL_AXIS,) else None
    for tensor in others:
        name = state.names.get(id(tensor))
        if ids is not None and name is not None and tensor.shape == ids.shape:
            # the usual case of one entry per channel
            state.ledger.carry(name, 0, ids, Role.FOLLOWER)
            continue
        if tensor.numel() > 1 or state.source(tensor) is not None:
            _follow_vector(state, call, tensor, (grid, _CHANNEL_AXIS))
    state.keep_grid(call.result, grid)


def _follow_vector(
    state: ChannelState, call: TracedCall, vector: torch.Tensor, channels: tuple[torch.Tensor, int]
) -> None:
    """Record that a parameter has one entry per channel along an axis of a grid."""
    source, (grid, axis) = state.source(vector), channels
    if source is None:
        state.fix(grid, f"'{place_of(call)}' reads a tensor that is not a parameter")
        return
    elements = source.elements.reshape(-1, *(1,) * (grid.dim() - 1 - axis))
    state.follow(grid, Source(source.parameter, source.shape, elements), place_of(call))


@channel_rule("normalisation")
def normalisation(state: ChannelState, call: TracedCall) -> None:
    """Follow layer and RMS norm; channels that their statistics cover must stay."""
    count = len(argument(call, 1, "normalized_shape"))
    grid = state.ids(call.args[0])
    for number, size in enumerate(argument(call, 1, "normalized_shape")):
        if isinstance(size, NamedInteger):
            note_width(state, call, call.args[0], (grid.dim() - count + number, size))
        elif isinstance(size, WeightSize):
            continue
        elif grid.dim() - count + number in varying_axes(grid):
            note_literal(state, call)
            place = place_of(call)
            state.split(Split(grid, place, literals=(grid.dim() - count + number,)))
    _normalise(state, call, range(grid.dim() - count, grid.dim()))


@channel_rule("group_normalisation")
def group_normalisation(state: ChannelState, call: TracedCall) -> None:
    """Follow group norm; the channels of a group are tied, and the number of groups shrinks."""
    data, count = call.args[0], argument(call, 1, "num_groups")
    place, ids = place_of(call), state.sequence(state.ids(data), _CHANNEL_AXIS, place_of(call))
    if ids is None or count == 1 or not call.address:
        return channel_normalisation(state, call)
    if not isinstance(count, NamedInteger) or count != count.whole:
        note_literal(state, call)
        state.fix(state.ids(data), f"'{place}' gets its number of groups from the code")
        return channel_normalisation(state, call)
    rows = torch.from_numpy(ids).reshape(count, -1)
    first = state.unite_along(rows, [1], place)[:, 0]
    state.ledger.count(count.module, count.attribute, first.numpy())
    grid = state.ids(data)
    for position, name in ((2, "weight"), (3, "bias")):
        tensor = argument(call, position, name)
        if tensor is not None:
            _follow_vector(state, call, tensor, (grid, _CHANNEL_AXIS))
    return state.set_grid(call.result, grid)


@channel_rule("channel_normalisation")
def channel_normalisation(state: ChannelState, call: TracedCall) -> None:
    """Follow group and local-response norm, whose statistics cover channels."""
    _normalise(state, call, range(_CHANNEL_AXIS, _CHANNEL_AXIS + 1))


def _normalise(state: ChannelState, call: TracedCall, axes: range) -> None:
    data, *parameters = call.operands
    grid = state.ids(data)
    if living(state, call, grid, axes):
        for tensor in parameters:
            _follow_vector(state, call, tensor, (grid, axes[0]))
        return state.set_grid(call.result, grid)
    reason = _NORMALISES
    if not state.living and call.func in AVERAGES:
        reason = f"{_NORMALISES} (living_norms allows removing them)"
    grid = state.mix(grid, axes, (place_of(call), reason))
    if any(axis in axes for axis in varying_axes(grid)):
        for tensor in parameters:
            state.fix_tensor(tensor, f"'{place_of(call)}' {reason}")
    return state.set_grid(call.result, grid)


def living(state: ChannelState, call: TracedCall, grid: torch.Tensor, axes: Iterable[int]) -> bool:
    """Restrict the statistics of a call to living channels if possible; return whether it is.

    It is possible if `state.living` is set, the function is one of `AVERAGES`, and channels lie
    along one axis only, over which it averages.
    """
    moving = varying_axes(grid)
    if not state.living or call.func not in AVERAGES or len(moving) != 1:
        return False
    ids = sequence(grid, moving[0])
    if moving[0] not in axes or ids is None or not _averages_one_axis(call):
        return False
    state.ledger.average((state.calls - 1, place_of(call)), moving[0], ids)
    return True


def _averages_one_axis(call: TracedCall) -> bool:
    shape = argument(call, 1, "normalized_shape")
    return call.func not in LAYER_NORMS or (isinstance(shape, Sequence) and len(shape) == 1)

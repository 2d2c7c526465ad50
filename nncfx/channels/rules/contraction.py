"""Channel rules of functions that read channels and create new ones."""

from collections.abc import Sequence

import numpy as np
import torch

from nncfx.channels.ids import NO_CHANNEL, spread, varying_axes
from nncfx.channels.rules.calls import argument, channel_rule, place_of, unknown
from nncfx.channels.rules.extents import counted
from nncfx.channels.state import ChannelState
from nncfx.graph.channels import Role
from nncfx.graph.union_find import Ids
from nncfx.tracing.record.function_mode import TracedCall


@channel_rule("embedding")
def embedding(state: ChannelState, call: TracedCall) -> None:
    """Follow an embedding (bag) lookup; the columns of the table are channels."""
    table = argument(call, 1, "weight")
    weight = state.whole_parameter(table)
    for tensor in call.operands:
        if tensor is not table:
            reason = f"'{place_of(call)}' reads it as an index or as the weight of one"
            state.fix(state.ids(tensor), reason)
    if weight is None:
        return unknown(state, call)
    ids = state.ledger.create(table.shape[1])
    state.ledger.carry(weight, 1, ids, Role.PRODUCER)
    return state.lay(call.result, ids, -1)


@channel_rule("linear")
def linear(state: ChannelState, call: TracedCall) -> None:
    """Follow a matrix product with a weight `o x i`, along the last axis."""
    grid, weight = state.ids(argument(call, 0, "input")), argument(call, 1, "weight")
    if weight.dim() == 1:
        return unknown(state, call, "has a weight of one axis")
    moving = varying_axes(grid)
    if moving and grid.dim() - 1 not in moving:  # mixes pixels or tokens, not channels
        mixed = spread(grid, call.result.shape)
        assert mixed is not None  # noqa: S101 (only the last axis changes its size)
        return state.set_grid(call.result, mixed)
    found, one = state.rows(weight), state.matrix(weight)
    if found is None and one is not None and argument(call, 2, "bias") is None:
        name, produced, consumed = one  # a matrix of a stack
        return weighted_product(state, call, grid, (name, consumed, produced))
    if found is None:
        return unknown(state, call, "has a weight that is not a parameter")
    name, rows = found
    _consume(state, call, grid, (name, 1, -1))
    ids = _created(state, weight, rows)
    _bias(state, call, ids)
    return state.lay(call.result, ids, -1)


def _created(state: ChannelState, tensor: torch.Tensor, rows: range) -> Ids:
    """Return the channels that the rows of a parameter, held by `tensor`, create."""
    source = state.source(tensor)
    assert source is not None  # noqa: S101 (rows are of a parameter)
    ids = state.ledger.carry_along(source.parameter, 0, source.shape[0], Role.PRODUCER)
    return ids[rows.start : rows.stop]


@channel_rule("added_product")
def added_product(state: ChannelState, call: TracedCall) -> None:
    """Follow `addmm(bias, input, weight)` with a weight `i x o`."""
    bias, data, weight = call.operands[:3]
    name, added = state.whole_parameter(weight), state.whole_parameter(bias)
    if name is None or added is None or state.source(data) is not None:
        return unknown(state, call, "has a weight or a bias that is not a parameter")
    weighted_product(state, call, state.ids(data), (name, 0, 1))
    ids = state.ledger.carried(name, 1, weight.shape[1])
    return state.ledger.carry(added, 0, ids, Role.PRODUCER)


def weighted_product(
    state: ChannelState,
    call: TracedCall,
    grid: torch.Tensor,
    what: tuple[str, int, int],
    *,
    axis: int = -1,
) -> None:
    """Follow a product with a matrix along one axis of the other operand.

    Args:
        state: updated with the result.
        call: the product.
        grid: ids of the other operand.
        what: the matrix's parameter, its axis that reads and its axis that creates channels.
        axis: the axis of the other operand and of the result, negative.
    """
    name, consumed, produced = what
    _consume(state, call, grid, (name, consumed, axis))
    size = call.result.shape[axis]
    state.lay(call.result, state.ledger.carry_along(name, produced, size, Role.PRODUCER), axis)


@channel_rule("convolution")
def convolution(state: ChannelState, call: TracedCall) -> None:
    """Follow a convolution with a weight `o x i/groups x *k`."""
    _convolve(state, call, (1, 0))


@channel_rule("transposed_convolution")
def transposed_convolution(state: ChannelState, call: TracedCall) -> None:
    """Follow a transposed convolution with a weight `i x o/groups x *k`."""
    _convolve(state, call, (0, 1))


def _convolve(state: ChannelState, call: TracedCall, axes: tuple[int, int]) -> None:
    grid, weight = state.ids(argument(call, 0, "input")), argument(call, 1, "weight")
    channel_axis = 1 - weight.dim()
    name = state.whole_parameter(weight)
    consumed, produced = axes
    groups = argument(call, 6, "groups", 1)
    if name is None and groups == 1 and produced == 0 and _convolve_by_block(state, call, grid):
        return None
    if name is None:
        return unknown(state, call, "has a weight that is not a parameter")
    moving = varying_axes(grid)
    if moving and channel_axis % grid.dim() not in moving and _keeps_places(call):
        # channels lie along an axis of pixels
        mixed = spread(grid, call.result.shape)
        if mixed is not None:
            return state.set_grid(call.result, mixed)
    if groups == 1:
        _consume(state, call, grid, (name, consumed, channel_axis))
        size = weight.shape[produced]
        ids = state.ledger.carry_along(name, produced, size, Role.PRODUCER)
        _bias(state, call, ids)
        return state.lay(call.result, ids, channel_axis)
    return _convolve_groups(state, call, (name, groups, channel_axis))


def _convolve_by_block(state: ChannelState, call: TracedCall, grid: torch.Tensor) -> bool:
    """Follow a convolution whose weight is a block of rows and columns of a parameter.

    Returns whether it can be followed: the block must begin and end where the parameter does, or
    where an integer of a module says.
    """
    weight = argument(call, 1, "weight")
    source, axis = state.source(weight), 1 - weight.dim()
    block = None if source is None else source.block
    ids = state.sequence(grid, axis, place_of(call))
    if source is None or block is None or ids is None:
        return False
    for number, part in enumerate(block):
        known = (0, source.shape[number])
        ends = [end for end in (part.start, part.stop) if end not in known]
        if not all(state.ledger.has_bound(source.parameter, number, end) for end in ends):
            return False
    rows, columns = block
    state.ledger.carry_part(source.parameter, 1, columns, ids, source.shape[1])
    made = _created(state, weight, rows)
    _bias(state, call, made)
    state.lay(call.result, made, axis)
    return True


def _keeps_places(call: TracedCall) -> bool:
    """Return whether a convolution keeps positions along each axis that keeps its size."""
    others = ((3, "stride", 1), (4, "padding", 0))
    return all(
        set(given) == {usual} if isinstance(given, Sequence) else given == usual
        for position, name, usual in others
        for given in [argument(call, position, name, usual)]
    )


def _convolve_groups(state: ChannelState, call: TracedCall, what: tuple[str, int, int]) -> None:
    """Tie all input and output channels of one group of a grouped (or depthwise) convolution."""
    name, groups, channel_axis = what
    grid, weight = state.ids(argument(call, 0, "input")), argument(call, 1, "weight")
    place, count = place_of(call), call.result.shape[channel_axis]
    members = state.ledger.create(groups)
    counted(state, call, groups, members)
    outputs = np.repeat(members, count // groups)
    inputs = state.sequence(grid, channel_axis, place)
    state.ledger.carry(name, 0, np.repeat(members, weight.shape[0] // groups), Role.FOLLOWER)
    if inputs is None:
        state.fix(grid, f"'{place}' reads channels from several axes")
        state.ledger.fix(outputs, f"'{place}' reads channels from several axes")
    else:
        state.ledger.tie(inputs, np.repeat(members, len(inputs) // groups), place)
    _bias(state, call, outputs)
    state.lay(call.result, outputs, channel_axis)


def _consume(
    state: ChannelState, call: TracedCall, grid: torch.Tensor, what: tuple[str, int, int]
) -> None:
    name, weight_axis, axis = what
    ids = state.sequence(grid, axis, place_of(call))
    if ids is None:
        reason = f"'{place_of(call)}' reads channels from several axes"
        state.fix(grid, reason)
        return
    state.ledger.carry(name, weight_axis, ids, Role.CONSUMER)


def _bias(state: ChannelState, call: TracedCall, ids: Ids) -> None:
    bias = argument(call, 2, "bias")
    if bias is None:
        return None
    name = state.names.get(id(bias))
    if name is not None and bias.shape == ids.shape:  # the usual case
        return state.ledger.carry(name, 0, ids, Role.PRODUCER)
    found, grid = state.rows(bias), state.grid(bias)
    if bias.dim() != 1 or (found is None and grid is None):
        state.ledger.tie(ids, np.full(len(ids), NO_CHANNEL), place_of(call))
        return state.fix_tensor(bias, f"'{place_of(call)}' has a bias that is not a parameter")
    # otherwise the bias is a concatenation of several parameters
    added = _created(state, bias, found[1]) if found is not None else state.ids(bias).numpy()
    return state.ledger.tie(added, ids, place_of(call))

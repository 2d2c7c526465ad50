"""Channel rules of functions that move elements, which are executed again on ids."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from nncfx.channels.ids import NO_CHANNEL, compact, narrowed, same_channels, spread, varying_axes
from nncfx.channels.rules.calls import argument, channel_rule, place_of, unknown
from nncfx.channels.rules.extents import narrowed_by_bounds, note_bounds, repeated, sliced
from nncfx.channels.rules.sizes import note_literal, note_sizes, note_width
from nncfx.channels.source import Source
from nncfx.channels.state import ChannelState, Split
from nncfx.errors import machine_fault
from nncfx.graph.channels import Role
from nncfx.tracing.calls.symbolic_sizes import NamedInteger, NamedSize
from nncfx.tracing.calls.tensors import replaced, tensors_in
from nncfx.tracing.record.function_mode import TracedCall

_VIEWS = (torch.Tensor.view, torch.Tensor.view_as)


@channel_rule("reshape")
def reshape(state: ChannelState, call: TracedCall) -> None:
    """Follow a function that keeps all elements, maybe repeated, in their order by channel."""
    if not state.is_known(call.operands[0]):  # a constant
        return None
    grid = _again(state, call)
    if grid is None:
        return unknown(state, call, "cannot be repeated on channels")
    _put(state, call, grid)
    return note_sizes(state, call)


@channel_rule("select")
def select(state: ChannelState, call: TracedCall) -> None:
    """Follow a function that can select some of the elements."""
    before, after = _data(state, call), _again(state, call)
    bounds = _BOUNDED.get(call.func.__name__)
    _, *indices = call.operands
    if after is None or any(varying_axes(state.ids(index)) for index in indices):
        return unknown(state, call, "cannot be repeated on channels")
    if isinstance(before, Source) and call.func is torch.Tensor.__getitem__:
        note_bounds(state, call, before)
    if isinstance(before, torch.Tensor) and not _all_same(before, after):
        if bounds is not None and bounds(state, call, before):
            return _put(state, call, after)
        return _put(state, call, _by_position(state, call, before, after))
    return _put(state, call, after)


def _all_same(before: torch.Tensor, after: torch.Tensor | Sequence[torch.Tensor] | Source) -> bool:
    parts = after if isinstance(after, Sequence) else [after]
    return all(isinstance(part, torch.Tensor) and same_channels(before, part) for part in parts)


def _by_position(
    state: ChannelState,
    call: TracedCall,
    before: torch.Tensor,
    after: torch.Tensor | Sequence[torch.Tensor],
) -> torch.Tensor | Sequence[torch.Tensor]:
    """Tie channels along the axes from which a call selects elements by position.

    Channels that lie along no other axis must stay. `after` is the call's result for `before`.
    """
    moving, place = varying_axes(before), place_of(call)
    fewer = (itertools.combinations(moving, count) for count in range(1, len(moving)))
    for axes in itertools.chain.from_iterable(fewer):
        shape = [1 if axis in axes else size for axis, size in enumerate(before.shape)]
        tried = before[tuple(map(slice, shape))].expand(before.shape)
        taken = _again(state, call, tried)
        if taken is not None and _all_same(tried, taken):
            state.unite_along(before, axes, place)
            return taken
    state.fix(before, f"'{place}' takes some channels by their position")
    return after


@channel_rule("split")
def split(state: ChannelState, call: TracedCall) -> None:
    """Follow a split into parts of given sizes; equal parts lose the same channels.

    Parts whose sizes are module integers lose channels independently, and the integers shrink.
    """
    axis = argument(call, 2, "dim", 0)
    sizes = argument(call, 1, "split_size")
    if isinstance(sizes, Sequence) and any(isinstance(one, NamedInteger) for one in sizes):
        return _split_by_names(state, call, sizes, axis)
    chunk(state, call)
    grid = state.grid(call.args[0])
    if not isinstance(sizes, NamedInteger | NamedSize) and grid is not None:
        note_literal(state, call)
        state.split(Split(grid, place_of(call), literals=(axis % grid.dim(),)))
    if isinstance(sizes, NamedInteger):
        for tensor in (call.args[0], call.produced[0]):  # the whole, or a part
            if tensor.shape[axis] == sizes.whole:
                return note_width(state, call, tensor, (axis, sizes))
    return None


def _split_by_names(
    state: ChannelState, call: TracedCall, sizes: Sequence[int], axis: int
) -> None:
    before, parts = _data(state, call), _again(state, call)
    if not isinstance(before, torch.Tensor) or not isinstance(parts, Sequence):
        return select(state, call)
    _put(state, call, parts)
    if _all_same(before, parts):
        return None
    for size, tensor in zip(sizes, call.result, strict=True):
        if isinstance(size, NamedInteger) and size == size.whole:
            note_width(state, call, tensor, (axis, size))
        else:
            state.fix_tensor(tensor, f"'{place_of(call)}' takes some channels by their position")
    return None


@channel_rule("chunk")
def chunk(state: ChannelState, call: TracedCall) -> None:
    """Follow a split into equal parts, which stay equal by losing the same channels."""
    before, parts = _data(state, call), _again(state, call)
    if not isinstance(before, torch.Tensor) or not isinstance(parts, Sequence):
        return select(state, call)
    if len({part.shape for part in parts}) > 1:
        return select(state, call)
    merged = state.merge_grids(parts, parts[0].shape, place_of(call))
    return _put(state, call, [merged] * len(parts))


@channel_rule("gate")
def gate(state: ChannelState, call: TracedCall) -> None:
    """Follow a gated linear unit, which multiplies the halves of an axis."""
    grid = _data(state, call)
    if not isinstance(grid, torch.Tensor):
        return unknown(state, call)
    halves = grid.chunk(2, argument(call, 1, "dim", -1))
    merged = state.merge_grids(halves, call.result.shape, place_of(call))
    return state.set_grid(call.result, merged)


@channel_rule("pixel_shuffle")
def pixel_shuffle(state: ChannelState, call: TracedCall) -> None:
    """Follow a pixel shuffle, which ties the channels that become pixels of one channel."""
    grid = _again(state, call)
    if not isinstance(grid, torch.Tensor) or state.source(call.operands[0]) is not None:
        return unknown(state, call)
    pixels = grid.flatten(-2).unbind(-1)
    merged = state.merge_grids(pixels, grid.shape[:-2], place_of(call))
    return state.set_grid(call.result, merged[..., None, None].expand(grid.shape))


@channel_rule("cast")
def cast(state: ChannelState, call: TracedCall) -> None:
    """Follow a function that keeps the shape and the order of its first argument."""
    data = _data(state, call)
    if data is not None:  # otherwise a constant is cast to another tensor's dtype
        _put(state, call, data)


@channel_rule("concatenate")
def concatenate(state: ChannelState, call: TracedCall) -> None:
    """Follow a concatenation, along channels or along any other axis."""
    tensors, axis = _joined(call)
    parts = [tensor for tensor in tensors if tensor.numel()]
    if call.result.dim() == 1 and all(state.whole_parameter(tensor) for tensor in parts):
        return _join_vectors(state, call, parts)
    return _join(state, call, parts, axis % call.result.dim())


@channel_rule("stack")
def stack(state: ChannelState, call: TracedCall) -> None:
    """Follow a stack, as a concatenation along a new axis."""
    tensors, axis = _joined(call)
    axis %= call.result.dim()
    parts = [tensor.unsqueeze(axis) for tensor in tensors]
    for part, tensor in zip(parts, tensors, strict=True):
        source, grid = state.source(tensor), state.grid(tensor)
        if source is not None:
            moved = Source(source.parameter, source.shape, source.elements.unsqueeze(axis))
            state.set_source(part, moved)
        elif grid is not None:
            state.set_grid(part, grid.unsqueeze(axis))
    _join(state, call, parts, axis)


@channel_rule("pad")
def pad(state: ChannelState, call: TracedCall) -> None:
    """Follow a padding; padded channels are constants, padded pixels belong to their channel."""
    grid = _data(state, call)
    if not isinstance(grid, torch.Tensor):
        return unknown(state, call)
    result, amounts = call.result, argument(call, 1, "pad")
    moving = varying_axes(grid)
    changed = [axis for axis in moving if grid.shape[axis] != result.shape[axis]]
    if not changed:
        kept = spread(grid, result.shape)
        return unknown(state, call) if kept is None else state.set_grid(result, kept)
    if argument(call, 2, "mode", "constant") != "constant" or min(amounts) < 0:
        return unknown(state, call, "changes the channels themselves")
    ends = zip(amounts[::2], amounts[1::2], strict=True)
    last = grid.dim() - 1
    ids = [end if last - axis in moving else (0, 0) for axis, end in enumerate(ends)]
    padded = F.pad(narrowed(grid), [amount for end in ids for amount in end], value=NO_CHANNEL)
    return state.set_grid(result, padded.expand(result.shape))


@channel_rule("assign")
def assign(state: ChannelState, call: TracedCall) -> None:
    """Follow `x[index] = value`, which ties the value's channels to those of the place."""
    target, index, value = call.args
    grid = state.ids(target)
    region = grid[index]
    if not same_channels(grid, region) or tensors_in(index):
        unknown(state, call, "writes some channels by their position")
        return state.fix(grid, f"'{place_of(call)}' writes some channels by their position")
    if isinstance(value, torch.Tensor):
        state.merge_grids([region, state.ids(value)], region.shape, place_of(call))
    return state.set_grid(target, grid)


def _join_vectors(state: ChannelState, call: TracedCall, parts: list[torch.Tensor]) -> None:
    """Follow concatenated vectors of parameters, such as biases of queries, keys and values."""
    joined = []
    for tensor in parts:
        name = state.whole_parameter(tensor)
        assert name is not None  # noqa: S101 (the caller has looked)
        ids = state.ledger.create(len(tensor))
        state.ledger.carry(name, 0, ids, Role.FOLLOWER)
        joined.append(torch.from_numpy(ids))
    state.set_grid(call.result, torch.cat(joined))


@channel_rule("add_at")
def add_at(state: ChannelState, call: TracedCall) -> None:
    """Follow `index_add`, `scatter_add` etc., which add to some places of an axis."""
    target, axis, index = call.args[0], argument(call, 1, "dim"), argument(call, 2, "index")
    part = argument(call, 3, "src" if "src" in call.kwargs else "source")
    grid, added = state.ids(target), state.ids(part)
    axis %= grid.dim()
    others = varying_axes(added) if index.dim() == added.dim() else ()
    if any(index.stride(one) for one in others):  # places differ by channel
        return unknown(state, call, "adds to some channels by their position")
    if axis in (*varying_axes(grid), *varying_axes(added)) or varying_axes(state.ids(index)):
        return unknown(state, call, "adds to some channels by their position")
    shape = [1 if a == axis else size for a, size in enumerate(grid.shape)]
    small = [one.narrow(axis, 0, 1) for one in (grid, added)]
    merged = state.merge_grids(small, shape, place_of(call)).expand(grid.shape)
    for tensor in call.produced:
        state.set_grid(tensor, merged)
    return None


def _joined(call: TracedCall) -> tuple[list[torch.Tensor], int]:
    tensors = list(argument(call, 0, "tensors"))
    axis = argument(call, 1, "axis" if "axis" in call.kwargs else "dim", 0)
    return tensors, int(axis)


def _join(state: ChannelState, call: TracedCall, parts: list[torch.Tensor], axis: int) -> None:
    result, place = call.result, place_of(call)
    grids = [state.ids(part) for part in parts]
    along_axis = any(axis in varying_axes(grid) for grid in grids)
    elsewhere = any(other != axis for grid in grids for other in varying_axes(grid))
    if along_axis and elsewhere:
        return unknown(state, call, "joins channels of different axes")
    if not elsewhere:
        small = [_only(grid, axis) for grid in grids]
        joined = torch.cat(small, axis)
        if not along_axis and state.ledger.are_fixed(joined[joined != NO_CHANNEL].numpy()):
            # no removable channels here, for instance in edge indices of a graph and its loops
            joined = joined.amax().expand(joined.shape)
        return state.set_grid(result, joined.expand(result.shape))
    shape = [1 if other == axis else size for other, size in enumerate(result.shape)]
    sources = [state.source(part) for part in parts]
    activations = [
        narrowed(grid).expand(shape)
        for grid, source in zip(grids, sources, strict=True)
        if source is None
    ]
    merged = state.merge_grids(activations, shape, place)
    for source in sources:
        if source is not None:
            state.follow(merged, source, place)
    return state.set_grid(result, merged.expand(result.shape))


def _only(grid: torch.Tensor, axis: int) -> torch.Tensor:
    shape = [size if other == axis else 1 for other, size in enumerate(grid.shape)]
    return narrowed(grid).expand(shape)


def _data(state: ChannelState, call: TracedCall) -> torch.Tensor | Source | None:
    tensor = call.operands[0]
    source = state.source(tensor)
    return state.grid(tensor) if source is None else source


def _again(
    state: ChannelState, call: TracedCall, grid: torch.Tensor | None = None
) -> torch.Tensor | list[torch.Tensor] | None:
    """Repeat a call on the ids (or elements) of its first tensor; return None if impossible.

    `grid` replaces the ids. Other operands on "meta", such as the rows that a router chooses, have
    no values; if the result differs for two test values, it is None.
    """
    first, *others = call.operands
    data = _data(state, call) if grid is None else grid
    if data is None:
        return None
    ids = data.elements if isinstance(data, Source) else data
    # contiguous for view; otherwise a new tensor object, because squeeze_ and others change it
    ids = ids.contiguous() if call.func in _VIEWS else ids.view_as(ids)

    made = _called(call, first, ids, 0)
    if made is None or not any(one.is_meta for one in others):
        return made
    again = _called(call, first, ids, 1)
    known = again is not None and all(map(torch.equal, tensors_in(made), tensors_in(again)))
    return made if known else None


def _called(
    call: TracedCall, first: torch.Tensor, ids: torch.Tensor, filling: int
) -> torch.Tensor | list[torch.Tensor] | None:
    """Repeat a call with `ids` in place of `first`; operands on "meta" are `filling`."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if tensor is first:
            return ids
        return torch.full_like(tensor, filling, device="cpu") if tensor.is_meta else tensor

    args: tuple[Any, ...] = replaced(call.args, change)
    kwargs: Mapping[str, Any] = replaced(call.kwargs, change)
    try:
        moved = call.func(*args, **kwargs)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        if machine_fault(error) is not None:
            raise
        return None
    found = tensors_in(moved)
    expected = [(one.shape, torch.int64) for one in call.produced]
    if [(one.shape, one.dtype) for one in found] != expected:
        return None
    found = [compact(one) for one in found]
    return found if not isinstance(moved, torch.Tensor) else found[0]


def _put(
    state: ChannelState, call: TracedCall, moved: torch.Tensor | Sequence[torch.Tensor] | Source
) -> None:
    data = _data(state, call)
    if isinstance(moved, Source):
        return state.set_source(call.result, moved)
    parts = [moved] if isinstance(moved, torch.Tensor) else moved
    for tensor, part in zip(call.produced, parts, strict=True):
        if isinstance(data, Source):
            state.set_source(tensor, Source(data.parameter, data.shape, part))
            continue
        state.set_grid(tensor, part)
    return None


_BOUNDED = {"__getitem__": sliced, "narrow": narrowed_by_bounds}
"""Functions that select between two bounds, with the functions that record the bounds."""

channel_rule("repeated")(repeated(reshape))

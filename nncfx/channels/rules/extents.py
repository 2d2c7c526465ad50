"""Channel rules of functions that take a number of channels: slices, repetition, groups."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from nncfx.channels.ids import along, sequence, varying_axes
from nncfx.channels.rules.calls import argument, place_of
from nncfx.channels.rules.sizes import note_literal
from nncfx.channels.source import Source
from nncfx.channels.state import ChannelState, Split
from nncfx.graph.union_find import Ids
from nncfx.tracing.calls.symbolic_sizes import NamedInteger, NamedSize
from nncfx.tracing.record.function_mode import TracedCall


def counted(state: ChannelState, call: TracedCall, size: Any, ids: Ids) -> bool:
    """Record that an integer counts channels; return whether the integer can be lowered."""
    if not isinstance(size, NamedInteger) or size != size.whole:
        note_literal(state, call)
        state.ledger.hold(place_of(call), ids)
        return False
    state.ledger.count(size.module, size.attribute, ids)
    return True


def sliced(state: ChannelState, call: TracedCall, grid: torch.Tensor) -> bool:
    """Record the bounds of a slice of channels; return whether they can be moved.

    They can be moved if each is 0, omitted, or an integer of a module, and the axis of channels
    is sliced with step 1.
    """
    moving = varying_axes(grid)
    found = _slice_of(call.args[1], moving[0], grid.dim()) if len(moving) == 1 else None
    if found is None or found.step not in (None, 1):
        return False
    bounds = [one for one in (found.start, found.stop) if one not in (None, 0)]
    return _counts_all(state, call, sequence(grid, moving[0]), bounds)


def narrowed_by_bounds(state: ChannelState, call: TracedCall, grid: torch.Tensor) -> bool:
    """Record the bounds of `narrow(tensor, axis, start, length)`, as `sliced` does."""
    moving, axis = varying_axes(grid), argument(call, 1, "dim") % grid.dim()
    start, length = argument(call, 2, "start"), argument(call, 3, "length")
    ids = sequence(grid, axis)
    if moving != (axis,) or ids is None or not isinstance(start, int):
        return False
    if start and not _counts_all(state, call, ids, [start]):
        return False
    return counted(state, call, length, ids[start : start + length])


def _counts_all(
    state: ChannelState, call: TracedCall, ids: Ids | None, bounds: Sequence[Any]
) -> bool:
    if ids is None or not bounds:
        return False
    if any(type(one) is int and one > 0 for one in bounds):
        note_literal(state, call)
    if not all(isinstance(one, NamedInteger) and one == one.whole > 0 for one in bounds):
        return False
    for one in bounds:
        counted(state, call, one, ids[:one])
    return True


def note_bounds(state: ChannelState, call: TracedCall, source: Source) -> None:
    """Record the module integers that bound slices of a whole parameter, along any axis."""
    if source.moved is not None:
        return
    for axis in range(len(source.shape)):
        found = _slice_of(call.args[1], axis, len(source.shape))
        for one in (found.start, found.stop) if found is not None else ():
            if isinstance(one, NamedInteger) and one == one.whole > 0:
                state.ledger.bound(source.parameter, axis, one)


def _slice_of(index: Any, axis: int, dim: int) -> slice | None:
    """Return the slice that an index takes of an axis; None if it takes no slice."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if any(one is None or isinstance(one, torch.Tensor | list | bool) for one in parts):
        return None
    if any(one is Ellipsis for one in parts):
        at = next(number for number, one in enumerate(parts) if one is Ellipsis)
        parts[at : at + 1] = [slice(None)] * (dim - len(parts) + 1)
    found = parts[axis] if axis < len(parts) else None
    return found if isinstance(found, slice) else None


def repeated(
    rule: Callable[[ChannelState, TracedCall], None],
) -> Callable[[ChannelState, TracedCall], None]:
    """Return the rule of `expand`, which is `rule` unless a value is repeated to a named width."""

    def follow(state: ChannelState, call: TracedCall) -> None:
        grid = state.grid(call.args[0])
        if call.func.__name__ == "expand_as":
            return None if _repeated_over_channels(state, call) else rule(state, call)
        found = None if grid is None or varying_axes(grid) else _width(call, grid)
        if grid is None:
            return rule(state, call)
        if found is None:
            rule(state, call)
            return _tell(state, call, grid)
        axis, size = found
        shape, place = call.result.shape, place_of(call)
        # each copy is removed with the channel it meets; the copied value must stay
        state.fix(grid, f"'{place}' repeats it")
        if isinstance(size, NamedSize):
            return state.lay(call.result, size.ids, axis)
        copies = along(state.ledger.create(size), axis, shape)
        state.set_grid(call.result, copies)
        return state.split(Split(copies, place, (), {axis: (size.module, size.attribute)}))

    return follow


def _repeated_over_channels(state: ChannelState, call: TracedCall) -> bool:
    """Follow `expand_as` if floats are repeated over the channels of the other tensor.

    Each copy is removed with the channel it meets. Integers are taken for indices, which stay.
    """
    tensor, other = call.args[0], state.grid(argument(call, 1, "other"))
    grid = state.grid(tensor)
    if other is None or state.source(tensor) is not None or not tensor.is_floating_point():
        return False
    shape = (*[1] * (other.dim() - tensor.dim()), *tensor.shape)
    moving = [axis for axis in varying_axes(other) if shape[axis] == 1]
    ids = sequence(other, moving[0]) if len(moving) == 1 else None
    if ids is None or (grid is not None and varying_axes(grid)):
        return False
    if grid is not None:
        state.fix(grid, f"'{place_of(call)}' repeats it")
    state.lay(call.result, ids, moving[0])
    return True


def _tell(state: ChannelState, call: TracedCall, grid: torch.Tensor) -> None:
    """Fix channels that meet copies of one value if their number is set only in code."""
    sizes = dict(enumerate(_sizes(call)))
    new = call.result.dim() - grid.dim()
    if varying_axes(grid):
        return
    if any(
        type(size) is int and size > 1 and (axis < new or grid.shape[axis - new] == 1)
        for axis, size in sizes.items()
    ):
        note_literal(state, call)
        reason = f"'{place_of(call)}' repeats one channel over them"
        state.fix(grid, reason)
        state.set_fixed(call.result, reason)


def _sizes(call: TracedCall) -> list[Any]:
    given = call.args[1:] or tuple(call.kwargs.values())
    return list(given[0]) if isinstance(given[0], Sequence) else list(given)


def _width(call: TracedCall, grid: torch.Tensor) -> tuple[int, Any] | None:
    """Return the single axis along which elements are repeated to a width, and the width."""
    new = call.result.dim() - grid.dim()
    found = list(_named(_sizes(call), [1] * new + list(grid.shape)))
    return found[0] if len(found) == 1 else None


def _named(sizes: Sequence[Any], before: Sequence[int]) -> Iterator[tuple[int, Any]]:
    for axis, (size, old) in enumerate(zip(sizes, before, strict=True)):
        if old == 1 < size and (
            (isinstance(size, NamedInteger) and size == size.whole)
            or (isinstance(size, NamedSize) and len(size.ids) == size)
        ):
            yield axis, size

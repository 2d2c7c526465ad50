"""Record which sizes of tensors a model's code passes, and where it takes them from."""

import math
from collections.abc import Sequence
from typing import Any, Final

import torch

from nncfx.channels.ids import in_order, varying_axes
from nncfx.channels.rules.calls import argument, is_in_torch_attention, place_of
from nncfx.channels.state import ChannelState, Split
from nncfx.graph.channels import Role
from nncfx.tracing.calls.symbolic_sizes import NamedInteger, NamedSize
from nncfx.tracing.record.function_mode import TracedCall

_SIZED: Final = frozenset(["view", "reshape", "unflatten"])


def note_literal(state: ChannelState, call: TracedCall) -> None:
    """Record that a call is passed a number of channels that is set only in code."""
    if call.address:
        state.ledger.literal(call.module, call.address)


def note_width(
    state: ChannelState, call: TracedCall, tensor: torch.Tensor, width: tuple[int, NamedInteger]
) -> None:
    """Record that the size of an axis is given by an integer of a module."""
    grid, (axis, size) = state.grid(tensor), width
    if grid is not None:
        widths = {axis % grid.dim(): (size.module, size.attribute)}
        state.split(Split(grid, place_of(call), (), widths))


def note_sizes(state: ChannelState, call: TracedCall) -> None:
    """Record which sizes of the result the code passed, and from which module integers."""
    grid = state.grid(call.result)
    if grid is None:
        return _note_parameter(state, call)
    if not varying_axes(grid):
        return None
    name = call.func.__name__
    if is_in_torch_attention(call):
        _note_heads(state, call, grid)
        if not _has_bias_tokens(call):
            return None
    sizes = _sizes(call) if name in _SIZED else []
    offset = argument(call, 1, "dim", 0) % call.args[0].dim() if name == "unflatten" else 0
    places = range(offset, offset + len(sizes))
    given = dict(zip(places, sizes, strict=True))
    free = tuple(axis for axis, size in given.items() if size == -1 or _is_rest(size))
    widths = {
        axis: (size.module, size.attribute)
        for axis, size in given.items()
        if isinstance(size, NamedInteger) and size == size.whole > 1
    }
    literals = tuple(
        axis
        for axis, size in given.items()
        if type(size) is int and size > 1 and axis in varying_axes(grid)
    )
    if literals:
        note_literal(state, call)
    for axis, size in given.items():
        if isinstance(size, NamedSize):
            _note_size(state, call, axis, size)
    return state.split(Split(grid, place_of(call), free, widths, literals))


def _note_parameter(state: ChannelState, call: TracedCall) -> None:
    """Record the size that code passes to reshape a vector, such as the scales of channels."""
    source, shape = state.source(call.result), call.result.shape
    sizes = _sizes(call) if call.func.__name__ in _SIZED - {"unflatten"} else []
    if source is None or len(source.shape) != 1 or sorted(shape)[:-1] != [1] * (len(shape) - 1):
        return
    count = source.shape[0]
    for size in sizes:
        if type(size) is int and size == count > 1:
            note_literal(state, call)
            state.ledger.hold(place_of(call), (source.parameter, 0))
        elif isinstance(size, NamedInteger) and size == size.whole == count > 1:
            ids = state.ledger.carry_along(source.parameter, 0, count, Role.FOLLOWER)
            state.ledger.count(size.module, size.attribute, ids)


def _note_size(state: ChannelState, call: TracedCall, axis: int, size: NamedSize) -> None:
    """Record that code passed another tensor's width as the size of one or two adjacent axes.

    If that width was divided by a number of heads, an adjacent axis has that number.
    """
    grid, whole = state.ids(call.result), len(size.ids)
    near = [(axis,), (axis - 1, axis), (axis, axis + 1)]
    for axes in near:
        there = axes[0] >= 0 and axes[-1] < grid.dim()
        if there and math.prod(grid.shape[a] for a in axes) == whole:
            return state.tie_axes(grid, axes, size.ids, place_of(call))
    return None


def _is_rest(size: object) -> bool:
    """Return whether a size follows from the others, as the whole width divided by a constant."""
    return isinstance(size, NamedSize) and size.is_rest


def _note_heads(state: ChannelState, call: TracedCall, grid: torch.Tensor) -> None:
    """Record that `nn.MultiheadAttention` lays out channels by heads, removed only as a whole.

    The reason is that it divides by the square root of a head's width.
    """
    moving, last = varying_axes(grid), grid.dim() - 1
    if call.func is not torch.Tensor.view or last not in moving:
        return
    if len(moving) == 1 and call.result.shape == call.args[0].shape:
        state.fix(grid, f"'{place_of(call)}' has one head only, which must stay")
    elif len(moving) > 1:
        heads = state.unite_along(grid, [last], place_of(call))
        state.ledger.count(call.module, "num_heads", in_order(heads))


def _has_bias_tokens(call: TracedCall) -> bool:
    """Return whether an `nn.MultiheadAttention` adds its own key, so it cannot be replaced.

    Others are replaced by a `NarrowAttention`, which takes all widths from its weights.
    """
    return f"{call.module}.bias_k" in call.parameter_names.values()


def _sizes(call: TracedCall) -> list[Any]:
    given = call.args[1:] if call.func.__name__ != "unflatten" else call.args[2:]
    values = [*given, *(call.kwargs[k] for k in ("shape", "size", "sizes") if k in call.kwargs)]
    return list(values[0]) if values and isinstance(values[0], Sequence) else values

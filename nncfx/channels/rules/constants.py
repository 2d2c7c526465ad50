"""Channel rule of functions that create a tensor of given shape with equivalent elements."""

import math
from collections.abc import Sequence
from typing import Final

import torch

from nncfx.channels.ids import compact
from nncfx.channels.rules.calls import argument, place_of
from nncfx.channels.state import ChannelState, Split
from nncfx.tracing.calls.symbolic_sizes import NamedInteger, NamedSize
from nncfx.tracing.record.function_mode import TracedCall

CONSTRUCTORS: Final = frozenset(
    {
        *("empty", "full", "ones", "rand", "randn", "zeros"),
        *("new_empty", "new_full", "new_ones", "new_zeros"),
    }
)
"""Functions whose first argument (or second, after a tensor) is a shape."""

_TOO_MANY: Final = 2**20


def constant(state: ChannelState, call: TracedCall) -> None:
    """Follow a new tensor, which shrinks with channels on an axis that is given their width.

    Otherwise it is constant.
    """
    first = 1 if isinstance(next(iter(call.args), None), torch.Tensor) else 0
    given = argument(call, first, "size", ())
    sizes = given if isinstance(given, Sequence) else call.args[first:]
    place, shape = place_of(call), call.result.shape
    for axis, size in enumerate(sizes):
        if isinstance(size, NamedSize) and len(size.ids) == size:
            return state.lay(call.result, size.ids, axis)
    widths = {
        axis: (size.module, size.attribute)
        for axis, size in enumerate(sizes)
        if isinstance(size, NamedInteger) and size == size.whole > 1
    }
    small = [size if axis in widths else 1 for axis, size in enumerate(shape)]
    if not widths or math.prod(small) > _TOO_MANY:
        return None
    ids = torch.from_numpy(state.ledger.create(math.prod(small))).reshape(small)
    grid = compact(ids.expand(shape))
    state.set_grid(call.result, grid)
    return state.split(Split(grid, place, (), widths))

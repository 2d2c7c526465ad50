"""Channel rules of functions that compute a weight from others (standardization, masks)."""

import math

import numpy as np
import torch

from nncfx.channels.rules.calls import argument, channel_rule, place_of, unknown
from nncfx.channels.rules.elementwise import per_channel, pointwise
from nncfx.channels.source import first_of_run
from nncfx.channels.state import ChannelState
from nncfx.graph.channels import Role
from nncfx.graph.union_find import Ids
from nncfx.tracing.record.function_mode import TracedCall

_ROWS, _COLUMNS = 1, 2  # axes of a standardized weight `1 x o x n`


@channel_rule("batch_normalisation")
def batch_normalisation(state: ChannelState, call: TracedCall) -> None:
    """Follow a batch norm of an activation, or of a weight laid out as `1 x o x n`.

    The latter standardizes weights, each row by its own mean and deviation. So the columns that
    are read must stay, unless statistics cover only living channels.
    """
    source = state.source(call.args[0])
    if source is None:
        return per_channel(state, call)
    layout = (1, source.shape[0], math.prod(source.shape[1:]))
    in_order = tuple(source.elements.shape) == layout and first_of_run(source.elements) == 0
    if not in_order or not argument(call, 5, "training", default=False):
        return unknown(state, call)
    # the role is set by a later call
    rows = state.ledger.carry_along(source.parameter, 0, source.shape[0], None)
    for position, name in ((3, "weight"), (4, "bias")):
        if not _follows(state, argument(call, position, name), rows):
            return unknown(state, call, "has a weight or a bias that is not a parameter")
    columns = state.ledger.carry_along(source.parameter, 1, source.shape[1], Role.CONSUMER)
    if state.living:
        entries = np.repeat(columns, layout[_COLUMNS] // len(columns))
        state.ledger.average((state.calls - 1, place_of(call)), _COLUMNS, entries)
    else:
        state.ledger.fix(columns, f"'{place_of(call)}' normalises over what reads it")
    return state.set_source(call.result, source)


@channel_rule("weight_normalisation")
def weight_normalisation(state: ChannelState, call: TracedCall) -> None:
    """Follow weight norm, which divides each row by its length, to which zeros add nothing."""
    source = state.source(call.args[0])
    along = argument(call, 2, "dim", default=0)
    if source is None or not source.is_whole or along != 0:
        return unknown(state, call)
    length = argument(call, 1, "g")
    rows = state.ledger.carry_along(source.parameter, 0, source.shape[0], None)
    if not _follows(state, length, rows):
        return unknown(state, call, "has a length that is not a parameter")
    state.ledger.divide(source.parameter, str(state.whole_parameter(length)))
    return state.set_source(call.result, source)


@channel_rule("product")
def product(state: ChannelState, call: TracedCall) -> None:
    """Follow a product; of two parameters of one shape, such as weight and mask, follow one.

    Its zeros are zeros of the product. The other parameter loses the same entries.
    """
    trained_first = sorted(call.operands, key=lambda tensor: not tensor.requires_grad)
    sources = [one for tensor in trained_first if (one := state.source(tensor)) is not None]
    shapes = {tuple(tensor.shape) for tensor in (*call.operands, call.result)}
    if len(sources) != 2 or len(shapes) > 1 or not all(one.is_whole for one in sources):  # noqa: PLR2004
        return pointwise(state, call)
    weight, mask = (one.parameter for one in sources)
    state.ledger.shadow(mask, weight)
    return state.set_source(call.result, sources[0])


def _follows(state: ChannelState, tensor: torch.Tensor | None, rows: Ids) -> bool:
    """Record that a parameter has one entry per row; return whether it does or is None."""
    if tensor is None:
        return True
    source = state.source(tensor)
    if source is None or {source.elements.numel(), source.shape[0]} != {len(rows)}:
        return False
    if first_of_run(source.elements) != 0:
        return False
    state.ledger.carry(source.parameter, 0, rows, Role.FOLLOWER)
    return True

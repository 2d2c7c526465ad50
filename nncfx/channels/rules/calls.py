"""What every channel rule needs: its place in the table, and what a traced call was given."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from torch import nn

from nncfx.channels.state import ChannelState
from nncfx.operators import FIXES, ROWS, Rules
from nncfx.tracing.hooks.spelled_functions import is_known_function
from nncfx.tracing.record.function_mode import TracedCall

Rule: TypeAlias = Callable[[ChannelState, TracedCall], None]

channel_rule: Final = Rules[Rule](
    lambda one: one.channels,
    {one.channels for one in ROWS} - {FIXES},
    "a channel rule of the operator table",
    is_known_function,
)
"""Decorates what follows channels through a call: of operations with a word in the table's
`channels`, or of one function."""


def place_of(call: TracedCall) -> str:
    """Return the address of a call, or its function's name where it has none."""
    return call.address or call.func.__name__


def is_in_torch_attention(call: TracedCall) -> bool:
    """Return whether `nn.MultiheadAttention` makes a call; no class that is only called so."""
    kind = call.module_class  # a subclass of ours where hooks stand, of the same name
    return issubclass(kind, nn.MultiheadAttention) and kind.__name__ == "MultiheadAttention"


def argument(call: TracedCall, position: int, name: str, default: Any = None) -> Any:
    """Return an argument of a call, given by position or by name."""
    if name in call.kwargs:
        return call.kwargs[name]
    return call.args[position] if len(call.args) > position else default


def unknown(state: ChannelState, call: TracedCall, why: str = "") -> None:
    """Fix the channels of everything that a call reads; nothing is known of its results."""
    reason = f"'{place_of(call)}' {why or 'is not followed'}"
    for tensor in call.operands:
        state.fix_tensor(tensor, reason)
    for tensor in call.produced:
        state.set_fixed(tensor, reason)

"""The registry of channel rules, and access to the arguments of traced calls."""

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
"""Decorator that registers a channel rule for a word in the operator table's `channels`, or for
one function."""


def place_of(call: TracedCall) -> str:
    """Return the address of a call, or its function's name if it has no address."""
    return call.address or call.func.__name__


def is_in_torch_attention(call: TracedCall) -> bool:
    """Return whether `nn.MultiheadAttention` itself, not a user's subclass, makes a call."""
    kind = call.module_class  # with hooks, our subclass of the same name
    return issubclass(kind, nn.MultiheadAttention) and kind.__name__ == "MultiheadAttention"


def argument(call: TracedCall, position: int, name: str, default: Any = None) -> Any:
    """Return an argument of a call, passed by position or by name."""
    if name in call.kwargs:
        return call.kwargs[name]
    return call.args[position] if len(call.args) > position else default


def unknown(state: ChannelState, call: TracedCall, why: str = "") -> None:
    """Fix all channels that a call reads, and mark its results as not followed."""
    reason = f"'{place_of(call)}' {why or 'is not followed'}"
    for tensor in call.operands:
        state.fix_tensor(tensor, reason)
    for tensor in call.produced:
        state.set_fixed(tensor, reason)

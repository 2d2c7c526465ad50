"""Read a traced call: where it stands, what it was given; and give up on one."""

from typing import Any

from torch import nn

from nncfx.channels.state import ChannelState
from nncfx.tracing.record.function_mode import TracedCall

__all__ = ["argument", "is_in_torch_attention", "place_of", "unknown"]


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

"""Which channel rule follows which torch function: `@channel_rule` attaches them to the table."""

from collections.abc import Callable
from typing import Final, TypeAlias

from nncfx.channels.state import ChannelState
from nncfx.operators import FIXES, ROWS, Rules
from nncfx.tracing.hooks.spelled_functions import is_known_function
from nncfx.tracing.record.function_mode import TracedCall

__all__ = ["Rule", "channel_rule"]

Rule: TypeAlias = Callable[[ChannelState, TracedCall], None]

channel_rule: Final = Rules[Rule](
    lambda one: one.channels,
    {one.channels for one in ROWS} - {FIXES},
    "a channel rule of the operator table",
    is_known_function,
)
"""Decorates what follows channels through a call: of operations with a word in the table's
`channels`, or of one function."""

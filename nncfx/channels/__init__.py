"""Analyze which channels of a model can only be removed together."""

from nncfx.channels.rules import channel_rule
from nncfx.channels.trace import analyze_channels

__all__ = ["analyze_channels", "channel_rule"]

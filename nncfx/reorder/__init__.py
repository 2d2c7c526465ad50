"""Reorders channels so that layers that keep different channels read slices (UPSCALE)."""

from nncfx.reorder.order import channel_order
from nncfx.reorder.reads import ChannelRead, channel_reads, copied_channels
from nncfx.reorder.reorder import ReorderResult, reorder_channels
from nncfx.reorder.rewriting import LayerRead, LayerWrite

__all__ = [
    "ChannelRead",
    "LayerRead",
    "LayerWrite",
    "ReorderResult",
    "channel_order",
    "channel_reads",
    "copied_channels",
    "reorder_channels",
]

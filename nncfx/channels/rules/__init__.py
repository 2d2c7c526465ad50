"""Rules that follow channels through torch functions, one module per family."""

from nncfx.channels.rules import contraction, elementwise, movement, products, recurrent, weights
from nncfx.channels.rules.calls import channel_rule

__all__ = [
    "channel_rule",
    "contraction",
    "elementwise",
    "movement",
    "products",
    "recurrent",
    "weights",
]

"""Block pruning, which zeroes whole tiles of weights."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "masks", "builder")

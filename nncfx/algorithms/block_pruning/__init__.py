"""Block pruning: whole tiles of weights are zero."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "masks", "builder")

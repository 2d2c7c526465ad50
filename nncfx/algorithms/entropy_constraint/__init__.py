"""Entropy constraint: weights on grids whose integers take so many bits in a file."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "controller", "hook", "builder")

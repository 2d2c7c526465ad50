"""Entropy constraint, which limits the bits that the integers of weights take in a file."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "controller", "hook", "builder")

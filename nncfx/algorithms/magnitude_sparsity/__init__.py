"""Magnitude sparsity, which zeroes the weights of smallest magnitude."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "builder")

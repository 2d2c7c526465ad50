"""Magnitude sparsity: the weights of smallest magnitude are zero."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "builder")

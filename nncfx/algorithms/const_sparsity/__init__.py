"""Constant sparsity: the weights that are zero stay zero."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "builder")

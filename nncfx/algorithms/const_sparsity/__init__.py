"""Constant sparsity, which keeps zero weights zero."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "builder")

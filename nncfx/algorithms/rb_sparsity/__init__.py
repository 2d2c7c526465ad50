"""Regularization-based sparsity: which weights go is learned."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "controller", "mask", "builder")

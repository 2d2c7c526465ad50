"""Regularization-based sparsity, which learns the weights to remove."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "controller", "mask", "builder")

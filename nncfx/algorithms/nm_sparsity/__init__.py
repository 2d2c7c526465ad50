"""N:M sparsity: n weights of every m neighbours stay."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "masks", "builder")

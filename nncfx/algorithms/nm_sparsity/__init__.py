"""N:M sparsity, which keeps n weights of every m neighbours."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "masks", "builder")

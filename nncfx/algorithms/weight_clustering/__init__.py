"""Weight clustering, in which the weights of each layer share a few values."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "controller", "hook", "builder")

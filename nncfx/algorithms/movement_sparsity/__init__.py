"""Movement sparsity, which removes weights that move towards zero in fine-tuning."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "controller", "mask", "builder")

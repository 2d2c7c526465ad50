"""Movement sparsity: weights that move towards zero while fine-tuning go."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "controller", "mask", "builder")

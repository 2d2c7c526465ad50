"""Quantization-aware training: the rounding of an integer runtime, in training."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "controller", "from_config", "statistics", "builder")

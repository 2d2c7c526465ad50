"""Quantization-aware training, which simulates the rounding of an integer runtime."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "controller", "from_config", "statistics", "builder")

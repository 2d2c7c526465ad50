"""Quantizers, ranges, placement and post-training quantization."""

from nncfx.quantization.fake_quantize import (
    fake_quantize,
    learned_fake_quantize,
    qparams_from_range,
    qparams_from_threshold,
    range_of,
)
from nncfx.quantization.quantizer import Quantizer
from nncfx.quantization.spec import FLOAT8_MAX, QuantizerSpec

__all__ = [
    "FLOAT8_MAX",
    "Quantizer",
    "QuantizerSpec",
    "fake_quantize",
    "learned_fake_quantize",
    "qparams_from_range",
    "qparams_from_threshold",
    "range_of",
]

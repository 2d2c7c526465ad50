"""Quantizers, ranges, placement and post-training quantization."""

from nncfx.quantization.batch_norm_folding import fold_batch_norms
from nncfx.quantization.grid import (
    fake_quantize,
    qparams_from_range,
    qparams_from_threshold,
    range_of,
)
from nncfx.quantization.placement import plan_quantizers
from nncfx.quantization.plan import (
    FloatOperation,
    PlacementOptions,
    PlannedQuantizer,
    QuantizationPlan,
    SpecRequest,
)
from nncfx.quantization.quantize import QuantizeOptions, quantize
from nncfx.quantization.quantizer import Quantizer
from nncfx.quantization.ranges import RangeRequest
from nncfx.quantization.spec import FLOAT8_MAX, QuantizerSpec

__all__ = [
    "FLOAT8_MAX",
    "FloatOperation",
    "PlacementOptions",
    "PlannedQuantizer",
    "QuantizationPlan",
    "QuantizeOptions",
    "Quantizer",
    "QuantizerSpec",
    "RangeRequest",
    "SpecRequest",
    "fake_quantize",
    "fold_batch_norms",
    "plan_quantizers",
    "qparams_from_range",
    "qparams_from_threshold",
    "quantize",
    "range_of",
]

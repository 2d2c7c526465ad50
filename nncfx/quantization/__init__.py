"""Quantizers, ranges, placement and post-training quantization."""

from nncfx.quantization.batch_norm_folding import fold_batch_norms
from nncfx.quantization.bias_correction import correct_biases
from nncfx.quantization.equalization import equalize_layers
from nncfx.quantization.fallback import AccuracyControl, quantize_with_accuracy_control
from nncfx.quantization.grid import (
    fake_quantize,
    qparams_from_range,
    qparams_from_threshold,
    range_of,
)
from nncfx.quantization.integer_arithmetic import GATE_STEPS, integer_arithmetic
from nncfx.quantization.layer_error import ErrorReport, layer_sensitivities, quantization_errors
from nncfx.quantization.layer_rounding import round_weights
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
from nncfx.quantization.rounding import RoundingSettings, adaptive_rounding
from nncfx.quantization.smooth_quant import smooth_layers
from nncfx.quantization.spec import FLOAT8_MAX, QuantizerSpec
from nncfx.quantization.weight_only import quantize_weights

__all__ = [
    "FLOAT8_MAX",
    "GATE_STEPS",
    "AccuracyControl",
    "ErrorReport",
    "FloatOperation",
    "PlacementOptions",
    "PlannedQuantizer",
    "QuantizationPlan",
    "QuantizeOptions",
    "Quantizer",
    "QuantizerSpec",
    "RangeRequest",
    "RoundingSettings",
    "SpecRequest",
    "adaptive_rounding",
    "correct_biases",
    "equalize_layers",
    "fake_quantize",
    "fold_batch_norms",
    "integer_arithmetic",
    "layer_sensitivities",
    "plan_quantizers",
    "qparams_from_range",
    "qparams_from_threshold",
    "quantization_errors",
    "quantize",
    "quantize_weights",
    "quantize_with_accuracy_control",
    "range_of",
    "round_weights",
    "smooth_layers",
]

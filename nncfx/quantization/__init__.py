"""Quantizers, ranges, placement and post-training quantization."""

from nncfx.quantization.analysis.accuracy_control import (
    AccuracyControl,
    quantize_with_accuracy_control,
)
from nncfx.quantization.analysis.layer_error import (
    ErrorReport,
    layer_sensitivities,
    quantization_errors,
)
from nncfx.quantization.analysis.mixed_precision import MixedPrecision, quantize_mixed
from nncfx.quantization.blocks.block_engine import WeightSettings, quantize_blocks
from nncfx.quantization.blocks.one_shot_pruning import PruningSettings, prune_blocks
from nncfx.quantization.budgets import Bytes, Points
from nncfx.quantization.checkpoints.gguf_file import write_gguf
from nncfx.quantization.checkpoints.quantize_checkpoint import quantize_checkpoint
from nncfx.quantization.grid.fake_quantize import fake_quantize, qparams_from_range, range_of
from nncfx.quantization.grid.plan import FloatOperation, PlannedQuantizer, QuantizationPlan
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.grid.spec import FLOAT8_MAX, QuantizerSpec
from nncfx.quantization.low_rank_updates import LowRankUpdates
from nncfx.quantization.options import QuantizeOptions
from nncfx.quantization.packing.pack_weights import unpack_weights
from nncfx.quantization.placement.placement_options import PlacementOptions, SpecRequest
from nncfx.quantization.placement.plan_quantizers import plan_quantizers
from nncfx.quantization.preparation.batch_norm_folding import fold_batch_norms
from nncfx.quantization.preparation.bias_correction import correct_biases
from nncfx.quantization.preparation.equalization import equalize_layers
from nncfx.quantization.preparation.rotation import rotate
from nncfx.quantization.preparation.separate_experts import separate_experts
from nncfx.quantization.preparation.smooth_quant import smooth_layers
from nncfx.quantization.quantize import quantize
from nncfx.quantization.ranges.range_estimation import RangeRequest
from nncfx.quantization.rounding.block_reconstruction import RoundingSettings
from nncfx.quantization.rounding.layer_rounding import round_weights
from nncfx.quantization.simulation.integer_arithmetic import SIGMOID_STEPS, integer_arithmetic
from nncfx.quantization.weight_only import quantize_weights
from nncfx.renamed import attribute

__all__ = [
    "FLOAT8_MAX",
    "SIGMOID_STEPS",
    "AccuracyControl",
    "Bytes",
    "ErrorReport",
    "FloatOperation",
    "LowRankUpdates",
    "MixedPrecision",
    "PlacementOptions",
    "PlannedQuantizer",
    "Points",
    "PruningSettings",
    "QuantizationPlan",
    "QuantizeOptions",
    "Quantizer",
    "QuantizerSpec",
    "RangeRequest",
    "RoundingSettings",
    "SpecRequest",
    "WeightSettings",
    "correct_biases",
    "equalize_layers",
    "fake_quantize",
    "fold_batch_norms",
    "integer_arithmetic",
    "layer_sensitivities",
    "plan_quantizers",
    "prune_blocks",
    "qparams_from_range",
    "quantization_errors",
    "quantize",
    "quantize_blocks",
    "quantize_checkpoint",
    "quantize_mixed",
    "quantize_weights",
    "quantize_with_accuracy_control",
    "range_of",
    "rotate",
    "round_weights",
    "separate_experts",
    "smooth_layers",
    "unpack_weights",
    "write_gguf",
]


def __getattr__(name: str) -> object:
    return attribute(__name__, name)

"""Quantization by search over a hardware description, simulated and realized in integers."""

from nncfx.hago.execution.quantizer import Quantizer, create_quantizer
from nncfx.hago.execution.realization import QuantizedGraph
from nncfx.hago.execution.simulation import SimulatedGraph
from nncfx.hago.graph.quant_graph import Node, NodeKind, QuantEdge, QuantGraph, prepare_graph
from nncfx.hago.rules.integer_kernels import IntegerCall, integer_kernel
from nncfx.hago.rules.scale_rules import infer_scale, rectify
from nncfx.hago.rules.topology import Topology, quantize_topology
from nncfx.hago.search.bayesian import BayesianTuner
from nncfx.hago.search.costs import (
    average_weight_bits,
    budgeted,
    cost_table,
    running_cost,
    weight_bytes,
)
from nncfx.hago.search.evaluation import Evaluator, top1_accuracy
from nncfx.hago.search.fitted_weights import FittedWeights
from nncfx.hago.search.hessian import hessian_sensitivities
from nncfx.hago.search.log import TrialRecord, best_strategy, read_log
from nncfx.hago.search.search import (
    QuantizeSettings,
    SearchSpace,
    search_quantize_strategy,
    search_space,
)
from nncfx.hago.search.sensitivity import (
    SensitivityGreedyTuner,
    edge_sensitivities,
    smoothed_sensitivities,
)
from nncfx.hago.search.tuners import (
    BatchedGreedySearchTuner,
    DefaultSettingTuner,
    GreedySearchTuner,
    GreedySquashTuner,
    RandomSearchTuner,
    SimulatedAnnealingTuner,
    Tuner,
)
from nncfx.hago.strategy.choice_space import choice_space
from nncfx.hago.strategy.strategy import Strategy
from nncfx.hago.strategy.thresholds import THRESHOLD_METHODS
from nncfx.quantization.analysis.bit_allocation import allocate_bits
from nncfx.targets import Hardware, hardware_named

__all__ = [
    "THRESHOLD_METHODS",
    "BatchedGreedySearchTuner",
    "BayesianTuner",
    "DefaultSettingTuner",
    "Evaluator",
    "FittedWeights",
    "GreedySearchTuner",
    "GreedySquashTuner",
    "IntegerCall",
    "Node",
    "NodeKind",
    "QuantEdge",
    "QuantGraph",
    "QuantizeSettings",
    "QuantizedGraph",
    "Quantizer",
    "RandomSearchTuner",
    "SearchSpace",
    "SensitivityGreedyTuner",
    "SimulatedAnnealingTuner",
    "SimulatedGraph",
    "Strategy",
    "Topology",
    "TrialRecord",
    "Tuner",
    "allocate_bits",
    "average_weight_bits",
    "best_strategy",
    "budgeted",
    "choice_space",
    "cost_table",
    "create_quantizer",
    "create_sample_hardware",
    "edge_sensitivities",
    "hessian_sensitivities",
    "infer_scale",
    "integer_kernel",
    "prepare_graph",
    "quantize_topology",
    "read_log",
    "rectify",
    "running_cost",
    "search_quantize_strategy",
    "search_space",
    "smoothed_sensitivities",
    "top1_accuracy",
    "weight_bytes",
]


def create_sample_hardware() -> Hardware:
    """Return the hardware of Hago's example: `nncfx.targets.hardware_named("hago")`."""
    return hardware_named("hago")

"""The JSON config: its dataclasses, its schema, and the faults of a file."""

from nncfx.config.accuracy_aware import AccuracyAwareParams, AccuracyAwareTraining
from nncfx.config.faults import Fault, config_error
from nncfx.config.initializer import BatchNormAdaptation, Initializer
from nncfx.config.main import AnyConfig, InputInfo, NNCFConfig
from nncfx.config.option import Limits, option, required
from nncfx.config.pruning_schedule import PruningConfig, PruningParams
from nncfx.config.registry import (
    AlgorithmConfig,
    InitializedAlgorithmConfig,
    TrainedAlgorithmConfig,
    algorithm_configs,
    register_algorithm_config,
    unregister_algorithm_config,
)
from nncfx.config.scheme import SchemeConfig
from nncfx.config.search import (
    ADMMRecovery,
    DCFineTunedRecovery,
    DCRecovery,
    LCRecovery,
    SearchConfig,
    SearchedScheme,
)
from nncfx.config.section import Section
from nncfx.config.sparsity_schedule import SparsityParams
from nncfx.renamed import attribute

__all__ = [
    "ADMMRecovery",
    "AccuracyAwareParams",
    "AccuracyAwareTraining",
    "AlgorithmConfig",
    "AnyConfig",
    "BatchNormAdaptation",
    "DCFineTunedRecovery",
    "DCRecovery",
    "Fault",
    "InitializedAlgorithmConfig",
    "Initializer",
    "InputInfo",
    "LCRecovery",
    "Limits",
    "NNCFConfig",
    "PruningConfig",
    "PruningParams",
    "SchemeConfig",
    "SearchConfig",
    "SearchedScheme",
    "Section",
    "SparsityParams",
    "TrainedAlgorithmConfig",
    "algorithm_configs",
    "config_error",
    "option",
    "register_algorithm_config",
    "required",
    "unregister_algorithm_config",
]


def __getattr__(name: str) -> object:
    return attribute(__name__, name)

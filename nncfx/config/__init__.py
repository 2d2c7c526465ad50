"""The JSON config: its dataclasses, its schema, and what is wrong with a file."""

from nncfx.config.faults import Fault, config_error
from nncfx.config.main import InputInfo, NNCFConfig
from nncfx.config.option import Limits, option, required
from nncfx.config.pruning import FilterPruningConfig, FilterPruningParams
from nncfx.config.registry import (
    AlgorithmConfig,
    algorithm_configs,
    register_algorithm_config,
    unregister_algorithm_config,
)
from nncfx.config.section import Section
from nncfx.config.sparsity import (
    MagnitudeSparsityConfig,
    MagnitudeSparsityParams,
    SparsityParams,
)

__all__ = [
    "AlgorithmConfig",
    "Fault",
    "FilterPruningConfig",
    "FilterPruningParams",
    "InputInfo",
    "Limits",
    "MagnitudeSparsityConfig",
    "MagnitudeSparsityParams",
    "NNCFConfig",
    "Section",
    "SparsityParams",
    "algorithm_configs",
    "config_error",
    "option",
    "register_algorithm_config",
    "required",
    "unregister_algorithm_config",
]

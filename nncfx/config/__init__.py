"""The JSON config: its dataclasses, its schema, and what is wrong with a file."""

from nncfx.config.accuracy_aware import AccuracyAwareParams, AccuracyAwareTraining
from nncfx.config.algorithms.block_pruning import BlockPruningConfig, BlockPruningParams
from nncfx.config.algorithms.distillation import KnowledgeDistillationConfig
from nncfx.config.algorithms.lc import LCConfig, LCParams, SchemeConfig
from nncfx.config.algorithms.movement import (
    MovementSparsityConfig,
    MovementSparsityParams,
    SparseStructure,
)
from nncfx.config.algorithms.pruning import (
    BranchPruningConfig,
    ChannelPruningConfig,
    ChannelPruningParams,
    FilterPruningConfig,
    FilterPruningParams,
    HeadPruningConfig,
    NeuronPruningConfig,
    PruningConfig,
    PruningParams,
    StructurePruningConfig,
)
from nncfx.config.algorithms.quantization import QuantizationConfig
from nncfx.config.algorithms.sparsity import (
    ConstSparsityConfig,
    MagnitudeSparsityConfig,
    MagnitudeSparsityParams,
    NMSparsityConfig,
    NMSparsityParams,
    RBSparsityConfig,
    RBSparsityParams,
    SparsityParams,
)
from nncfx.config.algorithms.weight_clustering import (
    WeightClusteringConfig,
    WeightClusteringParams,
)
from nncfx.config.faults import Fault, config_error
from nncfx.config.initializer import BatchNormAdaptation, Initializer
from nncfx.config.main import InputInfo, NNCFConfig
from nncfx.config.option import Limits, option, required
from nncfx.config.registry import (
    AlgorithmConfig,
    InitializedAlgorithmConfig,
    TrainedAlgorithmConfig,
    algorithm_configs,
    register_algorithm_config,
    unregister_algorithm_config,
)
from nncfx.config.search import (
    ADMMRecovery,
    DCFineTunedRecovery,
    DCRecovery,
    LCRecovery,
    SearchConfig,
    SearchedScheme,
)
from nncfx.config.section import Section

__all__ = [
    "ADMMRecovery",
    "AccuracyAwareParams",
    "AccuracyAwareTraining",
    "AlgorithmConfig",
    "BatchNormAdaptation",
    "BlockPruningConfig",
    "BlockPruningParams",
    "BranchPruningConfig",
    "ChannelPruningConfig",
    "ChannelPruningParams",
    "ConstSparsityConfig",
    "DCFineTunedRecovery",
    "DCRecovery",
    "Fault",
    "FilterPruningConfig",
    "FilterPruningParams",
    "HeadPruningConfig",
    "InitializedAlgorithmConfig",
    "Initializer",
    "InputInfo",
    "KnowledgeDistillationConfig",
    "LCConfig",
    "LCParams",
    "LCRecovery",
    "Limits",
    "MagnitudeSparsityConfig",
    "MagnitudeSparsityParams",
    "MovementSparsityConfig",
    "MovementSparsityParams",
    "NMSparsityConfig",
    "NMSparsityParams",
    "NNCFConfig",
    "NeuronPruningConfig",
    "PruningConfig",
    "PruningParams",
    "QuantizationConfig",
    "RBSparsityConfig",
    "RBSparsityParams",
    "SchemeConfig",
    "SearchConfig",
    "SearchedScheme",
    "Section",
    "SparseStructure",
    "SparsityParams",
    "StructurePruningConfig",
    "TrainedAlgorithmConfig",
    "WeightClusteringConfig",
    "WeightClusteringParams",
    "algorithm_configs",
    "config_error",
    "option",
    "register_algorithm_config",
    "required",
    "unregister_algorithm_config",
]

"""The algorithms, one folder each; `nncfx.config.discovery` lists them."""

from typing import TYPE_CHECKING

from nncfx.lazy import names_of

if TYPE_CHECKING:
    from nncfx.algorithms.block_pruning.builder import BlockPruningBuilder, BlockPruningController
    from nncfx.algorithms.block_pruning.config import BlockPruningConfig
    from nncfx.algorithms.channel_pruning.config import (
        BranchPruningConfig,
        FilterPruningConfig,
        HeadPruningConfig,
        NeuronPruningConfig,
        StructurePruningConfig,
    )
    from nncfx.algorithms.channel_pruning.kinds import (
        BranchPruningBuilder,
        FilterPruningBuilder,
        HeadPruningBuilder,
        NeuronPruningBuilder,
        StructurePruningBuilder,
    )
    from nncfx.algorithms.const_sparsity.builder import (
        ConstSparsityBuilder,
        ConstSparsityController,
    )
    from nncfx.algorithms.const_sparsity.config import ConstSparsityConfig
    from nncfx.algorithms.entropy_constraint.builder import EntropyConstraintBuilder
    from nncfx.algorithms.entropy_constraint.config import EntropyConstraintConfig
    from nncfx.algorithms.entropy_constraint.controller import EntropyConstraintController
    from nncfx.algorithms.knowledge_distillation.builder import KnowledgeDistillationBuilder
    from nncfx.algorithms.knowledge_distillation.config import KnowledgeDistillationConfig
    from nncfx.algorithms.knowledge_distillation.controller import KnowledgeDistillationController
    from nncfx.algorithms.magnitude_sparsity.builder import (
        MagnitudeSparsityBuilder,
        MagnitudeSparsityController,
    )
    from nncfx.algorithms.magnitude_sparsity.config import MagnitudeSparsityConfig
    from nncfx.algorithms.movement_sparsity.builder import MovementSparsityBuilder
    from nncfx.algorithms.movement_sparsity.config import MovementSparsityConfig
    from nncfx.algorithms.movement_sparsity.controller import MovementSparsityController
    from nncfx.algorithms.nm_sparsity.builder import NMSparsityBuilder, NMSparsityController
    from nncfx.algorithms.nm_sparsity.config import NMSparsityConfig
    from nncfx.algorithms.quantization.builder import QuantizationBuilder
    from nncfx.algorithms.quantization.config import QuantizationConfig
    from nncfx.algorithms.quantization.controller import QuantizationController
    from nncfx.algorithms.quantization.statistics import (
        OptimizerSettings,
        QuantizationStatistics,
        QuantizerStatistics,
    )
    from nncfx.algorithms.rb_sparsity.builder import RBSparsityBuilder
    from nncfx.algorithms.rb_sparsity.config import RBSparsityConfig
    from nncfx.algorithms.rb_sparsity.controller import RBSparsityController
    from nncfx.algorithms.weight_clustering.builder import WeightClusteringBuilder
    from nncfx.algorithms.weight_clustering.config import WeightClusteringConfig
    from nncfx.algorithms.weight_clustering.controller import (
        ClusteringStatistics,
        WeightClusteringController,
    )

__all__ = [
    "BlockPruningBuilder",
    "BlockPruningConfig",
    "BlockPruningController",
    "BranchPruningBuilder",
    "BranchPruningConfig",
    "ClusteringStatistics",
    "ConstSparsityBuilder",
    "ConstSparsityConfig",
    "ConstSparsityController",
    "EntropyConstraintBuilder",
    "EntropyConstraintConfig",
    "EntropyConstraintController",
    "FilterPruningBuilder",
    "FilterPruningConfig",
    "HeadPruningBuilder",
    "HeadPruningConfig",
    "KnowledgeDistillationBuilder",
    "KnowledgeDistillationConfig",
    "KnowledgeDistillationController",
    "MagnitudeSparsityBuilder",
    "MagnitudeSparsityConfig",
    "MagnitudeSparsityController",
    "MovementSparsityBuilder",
    "MovementSparsityConfig",
    "MovementSparsityController",
    "NMSparsityBuilder",
    "NMSparsityConfig",
    "NMSparsityController",
    "NeuronPruningBuilder",
    "NeuronPruningConfig",
    "OptimizerSettings",
    "QuantizationBuilder",
    "QuantizationConfig",
    "QuantizationController",
    "QuantizationStatistics",
    "QuantizerStatistics",
    "RBSparsityBuilder",
    "RBSparsityConfig",
    "RBSparsityController",
    "StructurePruningBuilder",
    "StructurePruningConfig",
    "WeightClusteringBuilder",
    "WeightClusteringConfig",
    "WeightClusteringController",
]

__getattr__ = names_of(
    __name__,
    "block_pruning",
    "channel_pruning",
    "const_sparsity",
    "entropy_constraint",
    "knowledge_distillation",
    "magnitude_sparsity",
    "movement_sparsity",
    "nm_sparsity",
    "quantization",
    "rb_sparsity",
    "weight_clustering",
)

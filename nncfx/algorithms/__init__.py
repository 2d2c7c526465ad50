"""The algorithms, one module each; importing this package registers them all."""

from nncfx.algorithms.block_pruning import BlockPruningBuilder, BlockPruningController
from nncfx.algorithms.channel_pruning.branch_pruning import BranchPruningBuilder
from nncfx.algorithms.channel_pruning.filter_pruning import FilterPruningBuilder
from nncfx.algorithms.channel_pruning.head_pruning import HeadPruningBuilder
from nncfx.algorithms.channel_pruning.neuron_pruning import NeuronPruningBuilder
from nncfx.algorithms.channel_pruning.structure_pruning import StructurePruningBuilder
from nncfx.algorithms.const_sparsity import ConstSparsityBuilder, ConstSparsityController
from nncfx.algorithms.knowledge_distillation import (
    KnowledgeDistillationBuilder,
    KnowledgeDistillationController,
)
from nncfx.algorithms.magnitude_sparsity import (
    MagnitudeSparsityBuilder,
    MagnitudeSparsityController,
)
from nncfx.algorithms.movement_sparsity import (
    MovementSparsityBuilder,
    MovementSparsityController,
)
from nncfx.algorithms.nm_sparsity import NMSparsityBuilder, NMSparsityController
from nncfx.algorithms.quantization import (
    OptimizerSettings,
    QuantizationBuilder,
    QuantizationController,
    QuantizationStatistics,
    QuantizerStatistics,
)
from nncfx.algorithms.rb_sparsity import RBSparsityBuilder, RBSparsityController
from nncfx.algorithms.weight_clustering import (
    ClusteringStatistics,
    WeightClusteringBuilder,
    WeightClusteringController,
)

__all__ = [
    "BlockPruningBuilder",
    "BlockPruningController",
    "BranchPruningBuilder",
    "ClusteringStatistics",
    "ConstSparsityBuilder",
    "ConstSparsityController",
    "FilterPruningBuilder",
    "HeadPruningBuilder",
    "KnowledgeDistillationBuilder",
    "KnowledgeDistillationController",
    "MagnitudeSparsityBuilder",
    "MagnitudeSparsityController",
    "MovementSparsityBuilder",
    "MovementSparsityController",
    "NMSparsityBuilder",
    "NMSparsityController",
    "NeuronPruningBuilder",
    "OptimizerSettings",
    "QuantizationBuilder",
    "QuantizationController",
    "QuantizationStatistics",
    "QuantizerStatistics",
    "RBSparsityBuilder",
    "RBSparsityController",
    "StructurePruningBuilder",
    "WeightClusteringBuilder",
    "WeightClusteringController",
]

"""Condensa's operators and schemes, and the masks that every pruning algorithm shares."""

from nncfx.schemes.clustering import Cluster
from nncfx.schemes.composition import AtLevel, Compose, FunctionScheme, SchemeLike, as_scheme
from nncfx.schemes.footprint import footprint_bytes, nonzero_parameters
from nncfx.schemes.heads import HeadPrune
from nncfx.schemes.kmeans import kmeans_1d
from nncfx.schemes.layers import LAYER_KINDS
from nncfx.schemes.low_rank import LowRank, factorize
from nncfx.schemes.masks.branches import branch_sets, keep_branches
from nncfx.schemes.masks.criteria import CRITERIA, Criterion, RandomScores
from nncfx.schemes.masks.exact_masks import (
    MaskScope,
    group_masks,
    group_scores,
    kept_count,
    zero_groups,
)
from nncfx.schemes.masks.importance import (
    activation_scores,
    fisher_scores,
    mean_magnitude,
    mean_rank,
    nonzero_share,
    norm_scale_scores,
    taylor_scores,
)
from nncfx.schemes.masks.kept_groups import keep_groups
from nncfx.schemes.masks.magnitude_masks import magnitude_mask, zero_smallest
from nncfx.schemes.masks.unconstrained import Ranking, Side, kept_units, unconstrained_masks
from nncfx.schemes.operators import (
    blockprune,
    dequantize,
    filter_prune,
    int8_grid,
    level_to_density,
    neuron_prune,
    prune,
    quantize,
)
from nncfx.schemes.pruning import BlockPrune, Prune
from nncfx.schemes.quantization import Quantize
from nncfx.schemes.rate_distortion.entropy_quantize import EntropyQuantize
from nncfx.schemes.scheme import Scheme
from nncfx.schemes.structured import FilterPrune, NeuronPrune, StructurePrune

__all__ = [
    "CRITERIA",
    "LAYER_KINDS",
    "AtLevel",
    "BlockPrune",
    "Cluster",
    "Compose",
    "Criterion",
    "EntropyQuantize",
    "FilterPrune",
    "FunctionScheme",
    "HeadPrune",
    "LowRank",
    "MaskScope",
    "NeuronPrune",
    "Prune",
    "Quantize",
    "RandomScores",
    "Ranking",
    "Scheme",
    "SchemeLike",
    "Side",
    "StructurePrune",
    "activation_scores",
    "as_scheme",
    "blockprune",
    "branch_sets",
    "dequantize",
    "factorize",
    "filter_prune",
    "fisher_scores",
    "footprint_bytes",
    "group_masks",
    "group_scores",
    "int8_grid",
    "keep_branches",
    "keep_groups",
    "kept_count",
    "kept_units",
    "kmeans_1d",
    "level_to_density",
    "magnitude_mask",
    "mean_magnitude",
    "mean_rank",
    "neuron_prune",
    "nonzero_parameters",
    "nonzero_share",
    "norm_scale_scores",
    "prune",
    "quantize",
    "taylor_scores",
    "unconstrained_masks",
    "zero_groups",
    "zero_smallest",
]

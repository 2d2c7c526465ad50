"""The algorithms, one module each; importing this package registers them all."""

from nncfx.algorithms.filter_pruning import (
    FilterPruningBuilder,
    FilterPruningController,
    FilterPruningStatistics,
)
from nncfx.algorithms.magnitude_sparsity import (
    MagnitudeSparsityBuilder,
    MagnitudeSparsityController,
    MagnitudeSparsityStatistics,
)

__all__ = [
    "FilterPruningBuilder",
    "FilterPruningController",
    "FilterPruningStatistics",
    "MagnitudeSparsityBuilder",
    "MagnitudeSparsityController",
    "MagnitudeSparsityStatistics",
]

"""Criteria: reduce the weights of one row, filter or block to one score.

Shapes: b blocks, m weights in a block.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor

from nncfx.errors import require_known
from nncfx.schemes.wide_floats import wide

Criterion: TypeAlias = str | Callable[[Tensor], Tensor]
"""A name in `CRITERIA`, or a function from `b x m` signed weights to `b` scores."""


def l1norm(blocks: Tensor) -> Tensor:
    """Return the sum of magnitudes of each of the `b x m` blocks."""
    return wide(blocks).abs().sum(dim=1)  # copies, yet takes half the time of the 1-norm


def l2norm(blocks: Tensor) -> Tensor:
    """Return the Euclidean norm of each of the `b x m` blocks."""
    norms: Tensor = torch.linalg.vector_norm(wide(blocks), ord=2, dim=1)
    return norms


def scaled_l2norm(blocks: Tensor) -> Tensor:
    """Return the Euclidean norm divided by m, so that large blocks do not dominate.

    Source: the `lite` branch of Condensa.
    """
    return l2norm(blocks) / blocks.shape[1]


def largest(blocks: Tensor) -> Tensor:
    """Return the largest magnitude of each of the `b x m` blocks."""
    return torch.amax(blocks.abs(), dim=1)


def smallest(blocks: Tensor) -> Tensor:
    """Return the smallest magnitude of each of the `b x m` blocks."""
    return torch.amin(blocks.abs(), dim=1)


def mean(blocks: Tensor) -> Tensor:
    """Return the mean magnitude of each of the `b x m` blocks."""
    return torch.mean(wide(blocks).abs(), dim=1)


def geometric_median(blocks: Tensor) -> Tensor:
    """Return, for each of the `b x m` blocks, the sum of its distances to all others.

    A block near the geometric median can be replaced by the others, so its score is low.

    Source: He et al., "Filter Pruning via Geometric Median", 2019 (FPGM).

    >>> geometric_median(torch.tensor([[0.0], [1.0], [5.0]]))
    tensor([6., 5., 9.])
    """
    blocks = wide(blocks)
    return torch.cdist(blocks, blocks, compute_mode="donot_use_mm_for_euclid_dist").sum(dim=1)


def lamp(blocks: Tensor) -> Tensor:
    """Return each block's squared norm over the sum of those that are not smaller, in [0, 1].

    The largest block of a layer scores 1, so a ranking over several layers never empties one.
    Blocks of equal norm have equal scores; if all are zero, the scores are 0.

    Source: Lee et al., "Layer-adaptive Sparsity for the Magnitude-based Pruning", 2021, eq. 3, for
    blocks instead of weights.

    >>> lamp(torch.tensor([[1.0, 0.0], [2.0, 0.0], [1.0, 1.0]]))
    tensor([0.1429, 1.0000, 0.3333])
    """
    squares = wide(blocks).square().sum(dim=1)
    ordered, order = squares.sort(descending=True)
    sums = ordered.cumsum(0)
    # among equal squares the last one has the sum over all of them
    last = torch.searchsorted(-ordered, -ordered, right=True) - 1
    shares = torch.where(sums[last] > 0, ordered / sums[last], ordered)
    return torch.empty_like(squares).index_copy(0, order, shares)


@dataclass(frozen=True)
class RandomScores:
    """Random scores in [0, 1), independent of the weights: a baseline for every criterion.

    Attributes:
        seed: Equal seeds give equal scores to equal numbers of blocks.
    """

    seed: int = 0

    def __call__(self, blocks: Tensor) -> Tensor:
        """Return b scores for `b x m` blocks."""
        generator = torch.Generator().manual_seed(self.seed)
        scores = torch.rand(len(blocks), generator=generator, dtype=torch.float32, device="cpu")
        return scores.to(blocks.device, blocks.dtype)


CRITERIA: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "geometric_median": geometric_median,
        "l1norm": l1norm,
        "l2norm": l2norm,
        "lamp": lamp,
        "max": largest,
        "mean": mean,
        "min": smallest,
        "random": RandomScores(),
        "scaled_l2norm": scaled_l2norm,
        "sum": l1norm,
    }
)
"""The criteria by name. "sum" is "l1norm", "max" is the L-infinity norm; "random" has seed 0."""


def resolve_criterion(criterion: Criterion) -> Callable[[Tensor], Tensor]:
    """Return the function named `criterion`, or `criterion` itself if it is a function.

    Raises:
        ArgumentError: no criterion has that name.

    >>> resolve_criterion("max")(torch.tensor([[1.0, -3.0]]))
    tensor([3.])
    """
    if not isinstance(criterion, str):
        return criterion
    fix = " Or give a function from b x m weights of blocks to b scores."
    require_known("criterion", criterion, sorted(CRITERIA), fix)
    return CRITERIA[criterion]

"""k-means on one axis: a small codebook for many weights.

After sorting once, each step searches for k borders, so ten million weights take seconds.
"""

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from nncfx.errors import CompressionError
from nncfx.float64 import in_float64
from nncfx.schemes.masks.exact_masks import check_at_least
from nncfx.sorting import ascending

KMeansInit: TypeAlias = Literal["linear", "density", "random"]
"""Initial centroids of k-means. linear: equally spaced between the smallest and the largest value,
which keeps the few large weights apart. density: each centroid has equally many values. random: k
of the values (Forgy)."""


def kmeans_1d(
    values: Tensor, k: int, *, init: KMeansInit = "linear", seed: int = 0, max_steps: int = 100
) -> Tensor:
    """Return at most `k` ascending centroids of flat `values`, by Lloyd's algorithm.

    If there are at most `k` distinct values, they are the centroids. A centroid without values is
    dropped.

    Args:
        values: n values, at least one, finite.
        k: Size of the codebook, at least 1.
        init: The initial centroids.
        seed: Of the random start.
        max_steps: Maximum number of steps; stops earlier when no centroid moves.

    Raises:
        ArgumentError: `k` or `max_steps` is below 1.
        CompressionError: there is no value, or one is not finite.

    Source: Han et al. (2016), Deep Compression, section 3.

    >>> kmeans_1d(torch.tensor([0.0, 0.2, 9.8, 10.0]), 2)
    tensor([0.1000, 9.9000])
    """
    check_at_least("k", k, 1)
    check_at_least("max_steps", max_steps, 1)
    ordered: Tensor = in_float64(ascending(values.flatten()))
    if ordered.numel() == 0 or not torch.isfinite(ordered[[0, -1]]).all():
        raise CompressionError(
            f"{ordered.numel()} weights cannot be clustered; clustering needs at least one, and "
            "all finite. Train the model to finite weights first."
        )
    distinct: Tensor = torch.unique_consecutive(ordered)
    if distinct.numel() <= k:
        return distinct.to(values)
    centroids = _start(ordered, k, init, seed)
    before = torch.cat([ordered.new_zeros(1), ordered.cumsum(0)])
    for _ in range(max_steps):
        moved = _step(ordered, before, centroids)
        if torch.equal(moved, centroids):
            break
        centroids = moved
    borders = _borders(ordered, centroids)
    centroids = centroids[borders.diff() > 0].to(values)
    codebook: Tensor = torch.unique_consecutive(centroids)
    return codebook


def nearest(values: Tensor, centroids: Tensor) -> Tensor:
    """Return, for each value, the index of the nearest of ascending `centroids`.

    Halfway between two centroids, the lower one is returned.

    >>> nearest(torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.0, 1.0]))
    tensor([0, 0, 1])
    """
    wide = in_float64(centroids)
    found = torch.searchsorted((wide[1:] + wide[:-1]) / 2, in_float64(values).contiguous())
    return found.to(values.device)


def _start(ordered: Tensor, k: int, init: KMeansInit, seed: int) -> Tensor:
    """Return `k` initial, ascending centroids for more than `k` values."""
    count = ordered.numel()
    if init == "linear":
        first, last = float(ordered[0]), float(ordered[-1])
        return torch.linspace(first, last, k, dtype=torch.float64, device=ordered.device)
    if init == "density":
        middles = (2 * torch.arange(k, device=ordered.device) + 1) * count // (2 * k)
        return ordered[middles]
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(count, generator=generator, device="cpu")[:k].sort().values
    return ordered[chosen.to(ordered.device)]


def _step(ordered: Tensor, before: Tensor, centroids: Tensor) -> Tensor:
    """Return each centroid moved to the mean of its values; empty ones do not move."""
    borders = _borders(ordered, centroids)
    counts = borders.diff()
    sums = before[borders].diff()
    return torch.where(counts > 0, sums / counts.clamp(min=1), centroids)


def _borders(ordered: Tensor, centroids: Tensor) -> Tensor:
    """Return the k + 1 positions that cut `ordered` into the values of each centroid."""
    inner = torch.searchsorted(ordered, (centroids[1:] + centroids[:-1]) / 2, right=True)
    first, last = inner.new_zeros(1), inner.new_full((1,), ordered.numel())
    return torch.cat([first, inner, last])

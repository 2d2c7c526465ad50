"""Compute the range of a grid from statistics of a tensor."""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal

import torch
from torch import Tensor

from nncfx.errors import ArgumentError, require_known
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.ranges.range_shares import squared_errors
from nncfx.quantization.ranges.statistics import (
    Extremes,
    Histogram,
    MeanQuantiles,
    TensorStatistic,
)

RangeMethod = Literal[
    "min_max",
    "mean_min_max",
    "mixed_min_max",
    "threesigma",
    "percentile",
    "mean_percentile",
    "mse",
    "mse_shares",
    "kl",
]

Range = tuple[Tensor, Tensor]

_SIGMAS: Final = 3 * 1.4826
"""Three standard deviations of a normal distribution, in units of its mean absolute deviation."""

_SHARES: Final = {
    "mse": 1 - torch.arange(100, dtype=torch.float64, device="cpu") / 100,
    "mse_shares": torch.linspace(1, 0.5, 11, dtype=torch.float64, device="cpu"),
}
"""Shares of the full range that are tried.

Source: 100 factors down to 0.01 are the search of OCTAV and of torch.ao's MSE observers.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RangeRequest:
    """How a range is found.

    Attributes:
        method: "min_max": the full range. "mean_min_max": means of the extremes of examples.
            "mixed_min_max" (NNCF): the mean of maxima, and the mean of minima if asymmetric;
            with a scale per channel as "min_max". "threesigma": median plus and minus
            three deviations, without zeros. "percentile": percentiles of all numbers.
            "mean_percentile": means of the percentiles of examples. "mse": the range with the
            least squared rounding error. "mse_shares": the best of 1, 0.95, ..., 0.5 times the
            full range by that error; fast for weights. "kl": the range with the least relative
            entropy.
        low: The lower percentile, in [0, 100].
        high: The upper percentile, above `low`.

    Raises:
        ArgumentError: the method is unknown, or the percentiles are out of range.
    """

    method: RangeMethod = "mixed_min_max"
    low: float = 0.1
    high: float = 99.9

    def __post_init__(self) -> None:
        require_known("range method", self.method, _METHODS)
        if not 0 <= self.low < self.high <= 100:  # noqa: PLR2004 (per cent)
            raise ArgumentError(
                f"The percentiles are {self.low} and {self.high}; they lie in 0 to 100, the lower "
                "one first."
            )


def statistic_for(request: RangeRequest, axis: int | None = None) -> TensorStatistic:
    """Return an empty statistic for `range_from` and the method of `request`.

    With an `axis`, each of its indices has a range.

    Raises:
        ArgumentError: the method does not support an axis.
    """
    extremes = ("min_max", "mean_min_max", "mixed_min_max")
    if axis is not None and request.method not in extremes:
        raise ArgumentError(
            f"The range method '{request.method}' gives one range for a tensor, and a range for "
            f"each index of axis {axis} is asked for. Use one of {', '.join(extremes)}."
        )
    if request.method in extremes:
        means = request.method == "mean_min_max" or (
            request.method == "mixed_min_max" and axis is None
        )
        return Extremes(axis, with_means=means)
    if request.method == "mean_percentile":
        return MeanQuantiles((request.low / 100, request.high / 100))
    return Histogram()


def range_from(statistic: TensorStatistic, request: RangeRequest, spec: QuantizerSpec) -> Range:
    """Return the ends of the range that a grid should cover, shaped as those of `statistic`.

    They lie within the observed range; for a constant tensor both ends are equal. `statistic`
    comes from `statistic_for(request, ...)` and has seen finite numbers only.
    """
    low, high = _METHODS[request.method](statistic, request, spec)
    low = torch.clamp(low.to(statistic.low), statistic.low, statistic.high)
    high = torch.clamp(high.to(statistic.high), statistic.low, statistic.high)
    return low, torch.maximum(low, high)


def _min_max(statistic: TensorStatistic, _: RangeRequest, __: QuantizerSpec) -> Range:
    return statistic.low, statistic.high


def _mean_min_max(statistic: TensorStatistic, _: RangeRequest, __: QuantizerSpec) -> Range:
    assert isinstance(statistic, Extremes | MeanQuantiles)  # noqa: S101 (made so)
    return statistic.means()


def _mixed_min_max(statistic: TensorStatistic, _: RangeRequest, spec: QuantizerSpec) -> Range:
    assert isinstance(statistic, Extremes)  # noqa: S101 (made so)
    if statistic.axis is not None:
        return statistic.low, statistic.high
    low, high = statistic.means()
    return (low if spec.mode == "asymmetric" else statistic.low), high


def _percentile(statistic: TensorStatistic, request: RangeRequest, _: QuantizerSpec) -> Range:
    counts, centers, width = _filled(statistic)
    low, high = (
        _quantile(counts, centers, width, one / 100) for one in (request.low, request.high)
    )
    return _end(low), _end(high)


def _three_sigma(statistic: TensorStatistic, _: RangeRequest, __: QuantizerSpec) -> Range:
    counts, centers, width = _filled(statistic)
    if float(counts.sum() - counts[len(counts) // 2]) > 0:
        # zeros from a ReLU say nothing about the spread of the rest
        counts[len(counts) // 2] = 0
    median = _quantile(counts, centers, width, 0.5)
    distances, order = (centers - median).abs().sort()
    running = counts[order].cumsum(0)
    deviation = float(distances[torch.searchsorted(running, running[-1:] / 2)[0]])
    reach = _SIGMAS * deviation
    return _end(median - reach), _end(median + reach)


def _end(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float32, device="cpu")


def _filled(statistic: TensorStatistic) -> tuple[Tensor, Tensor, float]:
    """Return counts, centers and width of a histogram; the width is 0 if all numbers are 0."""
    assert isinstance(statistic, Histogram)  # noqa: S101 (made so)
    counts = statistic.counts.clone()
    counts[Histogram.bins // 2] += statistic.zeros
    return counts.double(), statistic.centers, statistic.width


def _quantile(counts: Tensor, centers: Tensor, width: float, quantile: float) -> float:
    """Return the quantile, interpolated linearly inside a bin."""
    running = counts.cumsum(0)
    wanted = quantile * float(running[-1])
    place = int(
        torch.searchsorted(running, torch.tensor([wanted], dtype=running.dtype, device="cpu"))[0]
    )
    place = min(place, len(counts) - 1)
    before = float(running[place] - counts[place])
    inside = (wanted - before) / max(float(counts[place]), 1.0)
    return float(centers[place]) + (min(max(inside, 0.0), 1.0) - 0.5) * width


def _least_squares(
    statistic: TensorStatistic, request: RangeRequest, spec: QuantizerSpec
) -> Range:
    """Return the ends, shrunk by the same factor, with the least rounding error."""
    counts, centers, _width = _filled(statistic)
    kept = counts > 0
    counts, centers = counts[kept], centers[kept]
    factors = _SHARES[request.method]
    # histograms are on the CPU, wherever the tensors were
    lows, highs = (end.cpu().double() * factors for end in (statistic.low, statistic.high))
    tried = centers.expand(len(factors), -1)
    errors = squared_errors(tried, (lows, highs), spec.replace(axis=0), counts)
    # of equal errors take the widest range
    best = int((errors == errors.min()).nonzero()[0])
    return lows[best], highs[best]


def _least_entropy(statistic: TensorStatistic, _: RangeRequest, spec: QuantizerSpec) -> Range:
    counts, _centers, width = _filled(statistic)
    half = len(counts) // 2
    folded = counts[half:] + counts[:half].flip(0)
    levels = spec.quant_max + 1 if spec.signed else (spec.quant_max + 1) // 2
    threshold = _end(kl_threshold(folded, levels) * width)
    return -threshold, threshold


def kl_threshold(counts: Tensor, levels: int) -> int:
    """Return the number of bins of `|x|` after which clipping loses the least information.

    The clipped histogram and its version with `levels` bins are compared by relative entropy; the
    smaller threshold wins a tie.

    Args:
        counts: Counts of `|x|` in bins of equal width, from 0 on.
        levels: Distinct magnitudes on the grid, at least 1.

    Source: Migacz, "8-bit inference with TensorRT", GTC 2017.
    """
    counts = counts.double().clone()
    # zeros are exact on every grid, and would outweigh the rest
    counts[0] = counts[1] if len(counts) > 1 else counts[0]
    used = int(counts.nonzero().max()) + 1 if bool(counts.any()) else len(counts)
    if used <= levels:
        return used
    best, least = used, float("inf")
    tail = counts.flip(0).cumsum(0).flip(0)
    for stop in range(levels, used + 1, max(1, (used - levels) // 256)):
        clipped = counts[:stop].clone()
        if stop < len(counts):
            clipped[-1] += tail[stop]
        place = torch.arange(stop, device="cpu") * levels // stop
        present = (counts[:stop] > 0).double()
        sums = torch.zeros(levels, dtype=torch.float64, device="cpu").index_add_(
            0, place, counts[:stop]
        )
        filled = torch.zeros(levels, dtype=torch.float64, device="cpu").index_add_(
            0, place, present
        )
        spread = (sums / filled.clamp(min=1))[place] * present
        divergence = _divergence(clipped, spread)
        if divergence < least:
            best, least = stop, divergence
    return best


def _divergence(one: Tensor, other: Tensor) -> float:
    """Return the relative entropy of two histograms; zeros of `other` count as 1e-12."""
    p = one / one.sum()
    q = (other / other.sum().clamp(min=1)).clamp(min=1e-12)
    return float(torch.where(p > 0, p * (p.clamp(min=1e-300) / q).log(), 0.0).sum())


_METHODS: Final[Mapping[str, Callable[[TensorStatistic, RangeRequest, QuantizerSpec], Range]]] = (
    MappingProxyType(
        {
            "min_max": _min_max,
            "mean_min_max": _mean_min_max,
            "mixed_min_max": _mixed_min_max,
            "threesigma": _three_sigma,
            "percentile": _percentile,
            "mean_percentile": _mean_min_max,
            "mse": _least_squares,
            "mse_shares": _least_squares,
            "kl": _least_entropy,
        }
    )
)

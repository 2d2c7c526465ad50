"""Five estimates of the largest magnitude worth representing, from statistics of a tensor."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BINS",
    "THRESHOLD_METHODS",
    "TensorStatistics",
    "average_range",
    "kl_estimate",
    "max_range",
    "power2_range",
    "quantile_range",
]

BINS: Final = 8001
"""Of the histogram over [-maximum, maximum]; odd, so that zero has a bin of its own."""

_QUANTIZED_BINS: Final = 255
_SMOOTHING: Final = 1e-4


@dataclass
class TensorStatistics:
    """What is kept of a tensor over the calibration batches.

    Attributes:
        minima: The least value of each batch.
        maxima: The greatest value of each batch.
        histogram: Counts in `BINS` equal bins over [-largest, largest]; empty if not collected.
    """

    minima: list[float] = field(default_factory=list)
    maxima: list[float] = field(default_factory=list)
    histogram: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @property
    def largest(self) -> float:
        """The largest magnitude; 0 without any value."""
        return max((abs(one) for one in (*self.minima, *self.maxima)), default=0.0)


def max_range(statistics: TensorStatistics) -> float:
    """Return the largest magnitude; 1 if all is zero."""
    return statistics.largest or 1.0


def power2_range(statistics: TensorStatistics) -> float:
    """Return the least power of two that is not below the largest magnitude; 1 if all is zero.

    >>> power2_range(TensorStatistics([-3.0], [1.0])), power2_range(TensorStatistics([0], [4.0]))
    (4.0, 4.0)
    """
    return next_power_of_two(max_range(statistics))


def average_range(statistics: TensorStatistics) -> float:
    """Return the larger of the mean batch minimum and maximum, in magnitude; 1 if both are zero.

    >>> average_range(TensorStatistics([-1.0, -3.0], [0.0, 2.0]))
    2.0
    """
    means = (float(np.mean(one)) for one in (statistics.minima, statistics.maxima) if one)
    return max((abs(one) for one in means), default=0.0) or 1.0


def quantile_range(statistics: TensorStatistics, quantile: float = 0.9999) -> float:
    """Return the quantile of the values (not of their magnitudes), to half a bin of the histogram.

    Where that is not positive, the largest magnitude, and 1 if all is zero.
    """
    counts = statistics.histogram
    bound = max_range(statistics)
    reached = np.searchsorted(np.cumsum(counts), quantile * counts.sum())
    value = (2 * min(int(reached), BINS - 1) + 1 - BINS) / BINS * bound
    return value if value > 0 else bound


def kl_estimate(statistics: TensorStatistics) -> float:
    """Return the threshold whose 255 bins lose the least information (Kullback-Leibler).

    Every threshold that takes in 255 bins of the histogram or more is tried; the first of equals
    wins. 1 if all is zero.

    Source: Migacz, 8-bit Inference with TensorRT, 2017, as MXNet computes it, smoothing 1e-4.
    """
    counts = statistics.histogram
    bound = max_range(statistics)
    if not counts.sum() or statistics.largest == 0:
        return bound
    middle, half = BINS // 2, _QUANTIZED_BINS // 2
    reaches = range(half, middle + 1)
    divergences = [_divergence(counts, middle - one, middle + one + 1) for one in reaches]
    best = reaches[int(np.argmin(divergences))]
    return (2 * best + 1) / BINS * bound


def next_power_of_two(value: float) -> float:
    """Return the least power of two that is not below `value`, which is positive."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(1.0, exponent - (mantissa == 0.5))  # noqa: PLR2004 (a power of two itself)


THRESHOLD_METHODS: Final[Mapping[str, Callable[[TensorStatistics], float]]] = MappingProxyType(
    {
        "avg_range": average_range,
        "kl_estimate": kl_estimate,
        "max_range": max_range,
        "power2_range": power2_range,
        "quantile_range": quantile_range,
    },
)
"""The estimates by name."""


def _divergence(counts: NDArray[np.float64], start: int, stop: int) -> float:
    """Return the divergence of the clipped histogram from its quantization, in nats."""
    inside = counts[start:stop]
    clipped = inside.copy()
    clipped[0] += counts[:start].sum()
    clipped[-1] += counts[stop:].sum()
    is_filled = clipped != 0
    merged = len(inside) // _QUANTIZED_BINS
    starts = np.arange(_QUANTIZED_BINS) * merged
    sums = np.add.reduceat(inside, starts)
    filled = np.add.reduceat(is_filled.astype(np.float64), starts)
    shares = np.divide(sums, filled, out=np.zeros_like(sums), where=filled > 0)
    lengths = np.diff(np.append(starts, len(inside)))
    quantized = np.where(is_filled, np.repeat(shares, lengths), 0.0)
    p, q = _smoothed(clipped), _smoothed(quantized)
    if p is None or q is None:
        return math.inf
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())


def _smoothed(counts: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Move a little from what is filled to what is empty; None where that cannot be done."""
    empty = counts == 0
    filled = len(counts) - int(empty.sum())
    if not filled:
        return None
    taken = _SMOOTHING * (len(counts) - filled) / filled
    if taken >= 1:
        return None
    result = counts + _SMOOTHING * empty - taken * ~empty
    return result if (result > 0).all() else None

"""Positions on a chart: ticks, scales, and labels that do not overlap."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# A tick step is one of these factors times a power of ten.
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A linear map from values in [low, high] to positions in [start, end].

    `start` can be larger than `end`, as on an upward axis of a page that counts downward.
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the position of `value`, rounded to a tenth; values outside map to outside."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def holds(self, value: float) -> bool:
        """Return whether `value` lies in [low, high]."""
        return self.low <= value <= self.high


def padded(values: Sequence[float], share: float = 0.06) -> tuple[float, float]:
    """Return the range of the finite `values`, widened by `share` on both sides.

    Equal values are extended by half their size, or 0.5 at zero, on either side; without values
    the result is (0, 1).

    >>> padded([0.0, 10.0], share=0.1)
    (-1.0, 11.0)
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    pad = (high - low) * share or abs(high) / 2 or 0.5
    return low - pad, high + pad


def ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Return round numbers in [low, high], with at most `count` steps.

    >>> ticks(0.0, 1.0), ticks(0.13, 0.97)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.2, 0.4, 0.6, 0.8])
    """
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    # the factor tolerates rounding in divisions such as 1.0 / 5
    step = next(s * power for s in _STEPS if s * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    places = max(0, 2 - math.floor(math.log10(step)))
    return [round(i * step, places) + 0.0 for i in range(first, last + 1)]


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions near `wanted`, at least `gap` apart and in [low, high].

    They keep the order of `wanted` (ties: the given order) and minimise the sum of squared moves.
    If they do not fit, the gap shrinks until they do.

    Isotonic regression of `wanted[i] - i * gap` by pooling adjacent violators, then clipped to the
    bounds, which remains optimal.

    Source: Barlow, Bartholomew, Bremner and Brunk, Statistical Inference under Order
    Restrictions, 1972, chapter 1.

    >>> spread([5.0, 5.0], gap=2.0, low=0.0, high=10.0)
    [4.0, 6.0]
    """
    if not wanted:
        return []
    room = (high - low) / max(len(wanted) - 1, 1)
    gap = min(gap, room)
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    pools: list[tuple[float, int]] = []  # mean and number of members
    for rank, index in enumerate(order):
        mean, size = wanted[index] - rank * gap, 1
        while pools and pools[-1][0] > mean:
            before, members = pools.pop()
            mean = (before * members + mean * size) / (members + size)
            size += members
        pools.append((mean, size))
    flat = [mean for mean, size in pools for _ in range(size)]
    end = high - (len(wanted) - 1) * gap
    result = [0.0] * len(wanted)
    for rank, index in enumerate(order):
        result[index] = max(low, min(flat[rank], end)) + rank * gap
    return result

"""Statistics of tensors that are updated batch by batch in constant memory.

Merging the statistics of parts of the data gives the statistic of all data, bitwise and in any
order: sums are whole numbers, and the bins of a histogram grow by doubling their width.
"""

import abc
import math
from typing import Self, final

import torch
from torch import Tensor
from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.schemes.wide_floats import wide
from nncfx.sorting import ascending

_PLENTY = 2**13
_LARGEST_EXPONENT = 127
_FIXED_POINT = 149
"""A float32 times 2^149 is a whole number."""


class TensorStatistic(abc.ABC):
    """Base class of statistics of a stream of tensors.

    Attributes:
        low: The smallest number seen, a scalar or one per channel; infinity before the first.
        high: The largest number seen.
        has_nan: Whether a number was NaN or infinite.
    """

    def __init__(self, axis: int | None = None) -> None:
        """Collect a statistic for each index of `axis`, or a single one if it is None."""
        self.axis = axis
        self.low = torch.tensor(math.inf, dtype=torch.float32, device="cpu")
        self.high = torch.tensor(-math.inf, dtype=torch.float32, device="cpu")

    @property
    def has_nan(self) -> bool:
        """Whether a number was NaN or infinite, or none was seen."""
        return not bool(torch.isfinite(self.low).all() & torch.isfinite(self.high).all())

    @property
    def is_empty(self) -> bool:
        """Whether no number was seen."""
        return bool((self.low == math.inf).all() & (self.high == -math.inf).all())

    @abc.abstractmethod
    def update(self, x: Tensor) -> None:
        """Update the statistic with `x`, whose axis 0 is that of examples."""

    @abc.abstractmethod
    def merge(self, other: Self) -> None:
        """Add the data of `other`, which must have the same settings."""

    def _widen(self, low: Tensor, high: Tensor) -> None:
        # minimum and maximum propagate NaN
        self.low = torch.minimum(self.low.to(low.device), wide(low))
        self.high = torch.maximum(self.high.to(high.device), wide(high))

    def _check_axis(self, other: "TensorStatistic") -> None:
        if self.axis != other.axis:
            raise ArgumentError(
                f"Statistics along axis {self.axis} and axis {other.axis} cannot be merged. "
                "Collect both along the same axis."
            )


@final
class Extremes(TensorStatistic):
    """The smallest and largest number, and the means of the extremes of each example.

    Attributes:
        examples: How many examples were seen.
    """

    def __init__(self, axis: int | None = None, *, with_means: bool = False) -> None:
        """Collect extremes, and their means over examples if `with_means`."""
        super().__init__(axis)
        self.with_means = with_means
        self.examples = 0
        self._sums: tuple[list[int], list[int]] = ([0], [0])

    @override
    def update(self, x: Tensor) -> None:
        if x.numel() == 0:
            return
        if not self.with_means and self.axis is None:
            self._widen(*x.aminmax())
            return
        low, high = self._each(x)
        self._widen(low.amin(0), high.amax(0))
        if self.with_means and not self.has_nan:
            self.examples += low.shape[0]
            self._sums = (_plus(self._sums[0], low), _plus(self._sums[1], high))

    def _each(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the extremes of each example, by channel if there is an axis."""
        kept = {0} if self.axis is None else {0, self.axis % x.ndim}
        if x.ndim == 0:
            x, kept = x.reshape(1), {0}
        axes = [axis for axis in range(x.ndim) if axis not in kept]
        low, high = (x.amin(axes), x.amax(axes)) if axes else (x, x)
        if self.axis is not None and self.axis % x.ndim == 0:
            # one example whose channels are along axis 0, such as a weight
            return low.unsqueeze(0), high.unsqueeze(0)
        return low, high

    def means(self) -> tuple[Tensor, Tensor]:
        """Return the means of the smallest and largest numbers of examples, correctly rounded."""
        denominator = self.examples << _FIXED_POINT
        means = [[part / denominator for part in parts] for parts in self._sums]
        low, high = (torch.tensor(part, dtype=torch.float32, device="cpu") for part in means)
        return low.reshape(self.low.shape), high.reshape(self.high.shape)

    @override
    def merge(self, other: Self) -> None:
        self._check_axis(other)
        self._widen(other.low, other.high)
        self.examples += other.examples
        self._sums = (_added(self._sums[0], other._sums[0]), _added(self._sums[1], other._sums[1]))


def _plus(sums: list[int], rows: Tensor) -> list[int]:
    for row in rows.float().reshape(rows.shape[0], -1).tolist():
        sums = _added(sums, [int(math.ldexp(value, _FIXED_POINT)) for value in row])
    return sums


def _added(one: list[int], other: list[int]) -> list[int]:
    if len(one) == len(other):
        return [a + b for a, b in zip(one, other, strict=True)]
    return one if len(one) > len(other) else other


@final
class Histogram(TensorStatistic):
    """Counts in bins of equal width, a power of two, around zero.

    When a number lies outside the bins, neighbouring bins are merged until it fits. In large
    examples only every k-th number is counted, which takes a fraction of the time; `low` and
    `high` consider all numbers. Histograms of parts of a batch merge exactly to that of the batch.

    Attributes:
        counts: How many numbers fell into each bin, int64; bin i begins at
            `(i - bins / 2) * width`.
        exponent: The width is 2 to this power; None while only zeros were seen.
        zeros: How many zeros were seen while there was no width.
    """

    bins = 4096

    def __init__(self) -> None:
        super().__init__()
        self.counts = torch.zeros(self.bins, dtype=torch.int64, device="cpu")
        self.exponent: int | None = None
        self.zeros = 0

    @override
    def update(self, x: Tensor) -> None:
        if x.numel() == 0:
            return
        low, high = x.aminmax()
        self._widen(low, high)
        if self.has_nan:
            return
        peak = max(abs(float(low)), abs(float(high)))
        if peak == 0:
            self._count_zeros(x.numel())
            return
        self._fit(math.frexp(peak)[1] - (self.bins.bit_length() - 2))
        # exact, since the width is a power of two, and faster than torch.histc
        sample = _sampled(x.detach()).cpu().to(self._exact_type(x.dtype))
        places = (sample / self.width).flatten().floor_()
        self.counts += torch.bincount(places.int().add_(self.bins // 2), minlength=self.bins)

    def _exact_type(self, dtype: torch.dtype) -> torch.dtype:
        """Return the narrowest type in which division by the width is exact."""
        assert self.exponent is not None  # noqa: S101 (there is a width)
        # numbers grow by a factor that fits into float32
        grows = dtype != torch.float64 and -_LARGEST_EXPONENT < self.exponent <= 0
        return torch.float32 if grows else torch.float64

    @property
    def width(self) -> float:
        """The width of a bin; 0 while only zeros were seen."""
        return 0.0 if self.exponent is None else math.ldexp(1.0, self.exponent)

    @property
    def centers(self) -> Tensor:
        """The middle of each bin, float64; the bin of zeros begins at 0."""
        index = torch.arange(self.bins, dtype=torch.float64, device="cpu")
        return (index - self.bins / 2 + 0.5) * self.width

    def _count_zeros(self, count: int) -> None:
        if self.exponent is None:
            self.zeros += count
        else:
            self.counts[self.bins // 2] += count

    def _fit(self, exponent: int) -> None:
        """Widen the bins to at least `2^exponent`."""
        if self.exponent is None:
            self.exponent = exponent
            self.counts[self.bins // 2] += self.zeros
            self.zeros = 0
        for _ in range(min(exponent - self.exponent, self.bins.bit_length())):
            pairs = self.counts.reshape(-1, 2).sum(1)
            self.counts.zero_()
            quarter = self.bins // 4
            self.counts[quarter : quarter + len(pairs)] = pairs
        self.exponent = max(self.exponent, exponent)

    @override
    def merge(self, other: Self) -> None:
        self._check_axis(other)
        self._widen(other.low, other.high)
        if other.exponent is None:
            self._count_zeros(other.zeros)
            return
        self._fit(other.exponent)
        same = Histogram()
        same.counts, same.exponent = other.counts.clone(), other.exponent
        assert self.exponent is not None  # noqa: S101 (fitted)
        same._fit(self.exponent)
        self.counts += same.counts


def _sampled(x: Tensor) -> Tensor:
    """Return at least `_PLENTY` evenly spaced numbers of each example, or all of a small one."""
    if x.ndim < 2 or x[0].numel() < 2 * _PLENTY:  # noqa: PLR2004 (a batch and its examples)
        return x
    # an odd stride does not align with the rows of an image
    return x.flatten(1)[:, :: (x[0].numel() // _PLENTY - 1) | 1]


@final
class MeanQuantiles(TensorStatistic):
    """The means of two quantiles of each example.

    Attributes:
        quantiles: The two quantiles, in [0, 1].
    """

    def __init__(self, quantiles: tuple[float, float]) -> None:
        super().__init__()
        self.quantiles = quantiles
        self._means = Extremes(with_means=True)

    @override
    def update(self, x: Tensor) -> None:
        if x.numel() == 0:
            return
        self._widen(*x.aminmax())
        rows = ascending(x.float().reshape(x.shape[0] if x.ndim else 1, -1))
        ends = torch.stack([_interpolated(rows, one) for one in self.quantiles], 1)
        self._means.update(ends)

    def means(self) -> tuple[Tensor, Tensor]:
        """Return the means of the lower and of the upper quantile."""
        return self._means.means()

    @override
    def merge(self, other: Self) -> None:
        self._widen(other.low, other.high)
        self._means.merge(other._means)


def _interpolated(rows: Tensor, quantile: float) -> Tensor:
    """Return the quantile of each sorted row, interpolated linearly as by torch."""
    place = quantile * (rows.shape[1] - 1)
    below = math.floor(place)
    above = min(below + 1, rows.shape[1] - 1)
    return torch.lerp(rows[:, below], rows[:, above], place - below)

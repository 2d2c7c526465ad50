"""The error of a metric that is measured on a sample."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from nncfx.errors import ArgumentError

CAUTION: Final = 2.0
"""Standard errors that a search keeps as a distance from its threshold.

The chosen level is the one that measured well, and each trial is the best of its steps, so the
1.28 that would suffice for nine in ten without any choice are too few. Chosen with
`benchmarks/honest_search.py simulate`."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The mean difference of two models over the same units (examples, or batches).

    Attributes:
        mean: the mean difference.
        standard_error: of that mean, at least 0.
        units: the number of differences, at least 2.
    """

    mean: float
    standard_error: float
    units: int

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the interval that contains the mean of all data with `confidence`, in (0, 1)."""
        half = _student((1 + confidence) / 2, self.units - 1) * self.standard_error
        return self.mean - half, self.mean + half

    @property
    def cautious_error(self) -> float:
        """The standard error, enlarged so that `CAUTION` of it are as safe with few units."""
        return self.standard_error * _student(NormalDist().cdf(CAUTION), self.units - 1) / CAUTION


def paired_difference(
    differences: Sequence[float],
    *,
    weights: Sequence[float] | None = None,
    of_shares: bool = False,
) -> Difference:
    """Return the mean of `differences`, one for each unit that both models saw, and its error.

    Two models that saw the same images differ on few of them, so their difference is known much
    more precisely than the accuracy of either.

    Args:
        differences: n numbers, at least 2; for accuracy 1, 0 or -1 for each image.
        weights: of the units, above 0, such as the batch sizes; equal by default.
        of_shares: whether differences are of right (1) against wrong (0). Two imaginary units, one
            for each model, then keep the error above 0 if the sample shows no difference.

    Raises:
        ArgumentError: there are fewer than 2 differences, or not as many weights.

    Source: Bonett and Price, Adjusted Wald confidence interval for a difference of binomial
        proportions based on paired data, J. Educational and Behavioral Statistics 37(4), 2012.

    >>> found = paired_difference([1, 0, 0, -1, 1, 0, 0, 0], of_shares=True)
    >>> found.mean, round(found.standard_error, 4)
    (0.125, 0.2214)
    """
    weights = [1.0] * len(differences) if weights is None else list(weights)
    if len(differences) < 2 or len(weights) != len(differences):  # noqa: PLR2004 (one has no spread)
        raise ArgumentError(
            f"{len(differences)} differences with {len(weights)} weights have no standard error. "
            "Give at least two, and as many weights."
        )
    total = math.fsum(weights)
    mean = math.fsum(w * d for w, d in zip(weights, differences, strict=True)) / total
    if of_shares:
        seen, counts = [*differences, 1.0, -1.0], [*weights, *[total / len(weights)] * 2]
    else:
        seen, counts = list(differences), weights
    whole = math.fsum(counts)
    centre = math.fsum(w * d for w, d in zip(counts, seen, strict=True)) / whole
    square = math.fsum((w * (d - centre)) ** 2 for w, d in zip(counts, seen, strict=True))
    # the sample fits its own mean too well, which the two units of Bonett and Price correct
    if not of_shares:
        square *= len(seen) / (len(seen) - 1)
    return Difference(mean=mean, standard_error=math.sqrt(square) / whole, units=len(differences))


def _student(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution, to 0.01.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5; exact for one and
        two degrees of freedom.
    """
    if freedom == 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:  # noqa: PLR2004 (as in the docstring)
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )

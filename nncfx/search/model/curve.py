"""A curve through measured points by a Gaussian process, for plots."""

import dataclasses
import math
from collections.abc import Sequence

from nncfx.errors import ArgumentError
from nncfx.search.model.gaussian_process import GaussianProcess
from nncfx.search.resolution import stretch

_TWO_SIDED_95 = 1.959964


@dataclasses.dataclass(frozen=True, kw_only=True)
class PosteriorCurve:
    """Mean and 95 % band of a measured curve; four sequences of equal length.

    Attributes:
        levels: the levels, in [0, 1).
        mean: posterior mean, in the unit of the values.
        lower: lower end of the pointwise 95 % band.
        upper: upper end of the pointwise 95 % band.
    """

    levels: tuple[float, ...]
    mean: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]


def posterior_curve(
    levels: Sequence[float],
    values: Sequence[float],
    grid: Sequence[float],
    *,
    noise: float | None = None,
    seed: int = 0,
) -> PosteriorCurve:
    """Return the curve of a Gaussian process through measured points.

    The band is that of the curve itself, without measurement noise.

    Args:
        levels: levels of the measurements, at least two, each in [0, 1).
        values: the measured values; finite.
        grid: the levels of the curve, each in [0, 1).
        noise: standard deviation of a measurement, in the unit of the values; None estimates it.
        seed: of the fit.

    Raises:
        ArgumentError: fewer than two points, unequal lengths, a level out of range, or a value or
            the noise not finite or not positive.
        MissingExtraError: BoTorch is not installed.

    >>> curve = posterior_curve([0.0, 0.5, 0.9], [0.95, 0.9, 0.4], [0.0, 0.45, 0.9])
    >>> curve.lower[1] < curve.mean[1] < curve.upper[1]
    True
    """
    _check(levels, values, grid, noise)
    process = GaussianProcess([stretch(level) for level in levels], values, noise=noise, seed=seed)
    mean, deviation = process.predict([stretch(level) for level in grid])
    half = _TWO_SIDED_95 * deviation
    return PosteriorCurve(
        levels=tuple(grid),
        mean=tuple(mean.tolist()),
        lower=tuple((mean - half).tolist()),
        upper=tuple((mean + half).tolist()),
    )


def _check(
    levels: Sequence[float], values: Sequence[float], grid: Sequence[float], noise: float | None
) -> None:
    if len(levels) != len(values) or len(levels) < 2:  # noqa: PLR2004 (one point has no curve)
        raise ArgumentError(
            f"{len(levels)} levels with {len(values)} values make no curve. "
            "Give as many values as levels, and at least two."
        )
    for level in (*levels, *grid):
        if not 0 <= level < 1:
            raise ArgumentError(
                f"{level} is not a level: a level is a fraction in [0, 1). Write 0.3 for 30 %."
            )
    for value in values:
        if not math.isfinite(value):
            raise ArgumentError(
                f"The value {value} cannot be drawn. Leave the failed measurements out."
            )
    if noise is not None and not (math.isfinite(noise) and noise > 0):
        raise ArgumentError(
            f"noise is {noise}; it is a standard deviation and must be positive. "
            "Leave it out to have it estimated."
        )

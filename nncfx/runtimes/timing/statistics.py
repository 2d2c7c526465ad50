"""Median and bootstrap interval of samples that come in rounds."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "bootstrap_medians", "percentile_interval"]

Array: TypeAlias = npt.NDArray[Any]

_CHUNK: Final = 4_000_000


def bootstrap_medians(
    rounds: Sequence[Sequence[float]],
    *,
    resamples: int,
    seed: int,
) -> Array:
    """Return the median of all samples under `resamples` drawings of the rounds with replacement.

    Whole rounds are drawn, not single samples: the calls of a round share the state of the
    machine, and drawing them one by one would promise an interval that is too narrow. With one
    sample in each round this is the ordinary bootstrap. Two inputs with the same number of rounds
    and the same seed see the same drawings, so that what disturbed a round of both cancels.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), sections 6 and 8.
    """
    values = np.concatenate([np.asarray(samples, dtype=np.float64) for samples in rounds])
    owner = np.repeat(np.arange(len(rounds)), [len(samples) for samples in rounds])
    order = np.argsort(values, kind="stable")
    values, owner = values[order], owner[order]
    generator = np.random.default_rng(seed)
    even = np.full(len(rounds), 1.0 / len(rounds))
    drawn = generator.multinomial(len(rounds), even, size=resamples).astype(np.int32)
    step = max(1, _CHUNK // len(values))
    medians = [
        _weighted_medians(values, drawn[start : start + step][:, owner])
        for start in range(0, resamples, step)
    ]
    return np.concatenate(medians)


def percentile_interval(statistics: Array, confidence: float) -> tuple[float, float]:
    """Return the central interval that holds `confidence` (in (0, 1)) of `statistics`."""
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(statistics, [tail, 1.0 - tail])
    return float(low), float(high)


def _weighted_medians(values: Array, weights: Array) -> Array:
    """Return, for each row of `weights`, the median of sorted `values` taken that many times."""
    cumulated = np.cumsum(weights, axis=1)
    half = cumulated[:, -1:] / 2.0
    lower = np.argmax(cumulated >= half, axis=1)
    upper = np.argmax(cumulated > half, axis=1)
    medians: Array = (values[lower] + values[upper]) / 2.0
    return medians

"""Median and bootstrap interval of samples that come in rounds."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


def bootstrap_medians(rounds: Sequence[Sequence[float]], *, resamples: int, seed: int) -> Array:
    """Return the median of all samples under `resamples` drawings of the rounds with replacement.

    Whole rounds are drawn, not single samples: the calls of a round share the state of the
    machine, and drawing them one by one would give an interval that is too narrow. With one sample
    in each round this is the ordinary bootstrap. Two inputs with the same number of rounds and the
    same seed use the same drawings, so that disturbances of a round of both cancel.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), sections 6 and 8.
    """
    values = np.concatenate([np.asarray(samples, dtype=np.float64) for samples in rounds])
    owner = np.repeat(np.arange(len(rounds)), [len(samples) for samples in rounds])
    order = np.argsort(values, kind="stable")
    generator = np.random.default_rng(seed)
    even = np.full(len(rounds), 1.0 / len(rounds))
    drawn = generator.multinomial(len(rounds), even, size=resamples)
    return _weighted_medians(values[order], owner[order], drawn)


def percentile_interval(statistics: Array, confidence: float) -> tuple[float, float]:
    """Return the central interval that contains `confidence` (in (0, 1)) of `statistics`."""
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(statistics, [tail, 1.0 - tail])
    return float(low), float(high)


def _weighted_medians(values: Array, owner: Array, drawn: Array) -> Array:
    """Return, for each row of `drawn`, the median of sorted `values`, weighted by their owner.

    Args:
        values: n, in ascending order.
        owner: The round of each value, n.
        drawn: How often each round was drawn, resamples x rounds.

    The weights are summed by blocks of values first, and one by one in the block that contains the
    median: for n values this takes about the root of n additions, instead of n.
    """
    size = math.isqrt(len(values)) + 1
    block = np.arange(len(values)) // size
    held = np.zeros((drawn.shape[1], block[-1] + 1))
    np.add.at(held, (owner, block), 1.0)
    reached = np.cumsum(drawn @ held, axis=1)
    total = reached[:, -1].astype(np.int64)

    def reaching(rank: Array) -> Array:
        """Return, for each row, the first value at which the summed weights reach its `rank`."""
        chosen = np.argmax(reached >= rank[:, None], axis=1)
        columns = chosen[:, None] * size + np.arange(size)
        inside = columns < len(values)
        columns = np.minimum(columns, len(values) - 1)
        weights = np.take_along_axis(drawn, owner[columns], axis=1) * inside
        before = np.take_along_axis(reached, chosen[:, None], axis=1)
        before = before - weights.sum(axis=1, keepdims=True)
        found = np.argmax(before + np.cumsum(weights, axis=1) >= rank[:, None], axis=1)
        at: Array = values[columns[np.arange(len(rank)), found]]
        return at

    medians: Array = (reaching((total + 1) // 2) + reaching(total // 2 + 1)) / 2.0
    return medians

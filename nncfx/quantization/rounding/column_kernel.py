"""A compiled loop that rounds columns of a weight one after another."""

import numpy as np
from numpy.typing import NDArray

from nncfx.storage.compiled import compiled

_OUTPUTS = 128
"""Outputs that are processed at once, so that their columns fit into the L1 cache."""


@compiled
def round_columns(  # noqa: PLR0913, PLR0917 (a compiled function takes no records)
    rest: NDArray[np.float64],
    new: NDArray[np.float64],
    errors: NDArray[np.float64],
    factor: NDArray[np.float64],
    steps: NDArray[np.float64],
    zeros: NDArray[np.float64],
    groups: NDArray[np.int64],
    gone: NDArray[np.bool_],
    low: float,
    high: float,
) -> None:
    """Round k columns; later columns compensate the error of each.

    Args:
        rest: The columns, k x o; overwritten.
        new: Output: the rounded columns, k x o.
        errors: Output: the changes divided by the diagonal of `factor`, k x o.
        factor: Factor for these columns, k x k; only the upper triangle is read.
        steps: Scale of each group, g x o.
        zeros: Zero point of each group, g x o.
        groups: Group of each column, k.
        gone: Which entries stay zero, k x o.
        low: The smallest integer of the grid.
        high: The largest integer of the grid.
    """
    for first in range(0, rest.shape[1], _OUTPUTS):
        last = min(first + _OUTPUTS, rest.shape[1])
        for column in range(len(rest)):
            values, rounded = rest[column][first:last], new[column][first:last]
            error, divisor = errors[column][first:last], factor[column, column]
            step, zero = steps[groups[column]][first:last], zeros[groups[column]][first:last]
            zero_stays = gone[column][first:last]
            for n in range(len(values)):
                whole = min(max(np.rint(values[n] / step[n]) + zero[n], low), high)
                rounded[n] = 0.0 if zero_stays[n] else (whole - zero[n]) * step[n]
                error[n] = (values[n] - rounded[n]) / divisor
            for later in range(column + 1, len(rest)):
                share, others = factor[column, later], rest[later][first:last]
                for n in range(len(others)):
                    others[n] -= share * error[n]

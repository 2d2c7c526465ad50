"""The columns of a part of a weight, rounded one after another by a compiled loop."""

import numpy as np
from numpy.typing import NDArray

from nncfx.storage.compiled import compiled

_OUTPUTS = 128
"""Whose columns stay in a core's first cache."""


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
    """Round k columns; later ones make up for the error of each.

    Args:
        rest: What is in them, k x o; it is used up.
        new: Filled with what replaces them, k x o.
        errors: Filled with their changes over the diagonal of `factor`, k x o.
        factor: Of these columns, k x k; the upper triangle is read.
        steps: Of the grid of each group, g x o.
        zeros: The numbers that stand for 0, g x o.
        groups: That of each column, k.
        gone: What stays zero, k x o.
        low: The least integer of the grid.
        high: The greatest.
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

"""Relative positions of the non-zeros of a flat array, in two forms.

*Gaps* are Deep Compression's: each entry has the number of zeros before it, and where that
exceeds `limit`, filler entries, which hold a zero value and advance `limit + 1` positions,
stand in between. A gap equal to `limit` is a normal entry, so a reader tells a filler by its
value. *Runs* carry no fillers among the values: the symbol `limit` stands for `limit` zeros
and no value, and every smaller symbol for that many zeros and then a value.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError

__all__ = ["Gaps", "positions_of_gaps", "positions_of_runs", "to_gaps", "to_runs"]

Ints: TypeAlias = NDArray[np.signedinteger[Any] | np.unsignedinteger[Any]]
Positions: TypeAlias = NDArray[np.int64]


class Gaps(NamedTuple):
    """Gaps with fillers: `gaps[i]` zeros precede entry i, and `filler[i]` says it has no value."""

    gaps: NDArray[np.uint16]
    filler: NDArray[np.bool_]


def zeros_before(positions: Ints) -> Positions:
    """Return how many zeros precede each of the strictly increasing `positions`.

    >>> zeros_before(np.array([0, 1, 2, 6, 8])).tolist()
    [0, 0, 0, 3, 1]
    """
    zeros = positions.astype(np.int64)
    zeros[1:] -= positions[:-1].astype(np.int64) + 1
    return zeros


def _interleave(zeros: Positions, skips: Positions) -> Gaps:
    # Entry i stands after its own skips and everything before: at cumsum(skips + 1) - 1.
    ends = np.cumsum(skips + 1)
    filler = np.ones(int(ends[-1]) if ends.size else 0, dtype=np.bool_)
    filler[ends - 1] = False
    gaps = np.zeros(filler.size, dtype=np.uint16)
    gaps[ends - 1] = zeros
    return Gaps(gaps, filler)


def to_gaps(positions: Ints, limit: int) -> Gaps:
    """Return `positions` as gaps in [0, limit] with fillers.

    Args:
        positions: Strictly increasing, from 0 on.
        limit: The largest gap, in [1, 65535]; 15 for 4-bit gaps.

    Source: Han et al., Deep Compression (2016), section 2, figure 2.

    >>> to_gaps(np.array([16, 17]), 15).gaps.tolist()
    [15, 0, 0]
    """
    zeros = zeros_before(positions)
    gaps, filler = _interleave(zeros % (limit + 1), zeros // (limit + 1))
    gaps[filler] = limit
    return Gaps(gaps, filler)


def positions_of_gaps(gaps: Ints, size: int) -> Positions:
    """Return the position of every entry, fillers included, in an array of `size`.

    Raises:
        StorageError: An entry lies outside the array.
    """
    positions = np.cumsum(gaps.astype(np.int64) + 1) - 1
    _check_end(positions, size)
    return positions


def to_runs(positions: Ints, limit: int) -> NDArray[np.uint16]:
    """Return `positions` as runs of zeros in [0, limit]; `limit` itself carries no value.

    Args:
        positions: Strictly increasing, from 0 on.
        limit: The symbol for "limit zeros and no value", in [1, 65535].

    >>> to_runs(np.array([2, 6]), 3).tolist()
    [2, 3, 0]
    """
    zeros = zeros_before(positions)
    runs, filler = _interleave(zeros % limit, zeros // limit)
    runs[filler] = limit
    return runs


def positions_of_runs(runs: Ints, limit: int, size: int) -> Positions:
    """Return the positions of the values of `runs`, the inverse of `to_runs`.

    Raises:
        StorageError: A symbol exceeds `limit`, or the runs leave an array of `size`.
    """
    valued = runs < limit
    if runs.size and int(runs.max()) > limit:
        raise StorageError(f"The file is damaged: a run of zeros exceeds its limit of {limit}.")
    ends = np.cumsum(runs.astype(np.int64) + valued)
    _check_end(ends - 1, size)
    return ends[valued] - 1


def _check_end(positions: Positions, size: int) -> None:
    if positions.size and int(positions[-1]) >= size:
        raise StorageError(
            f"The sparse index is damaged or of another tensor: it reaches position "
            f"{int(positions[-1])} in a tensor of {size} weights.",
        )

"""Relative positions of the non-zeros of a flat array, in two forms.

*Gaps* are those of Deep Compression: each entry has the number of zeros before it; where that
exceeds `limit`, it is preceded by filler entries, which hold a zero value and advance `limit + 1`
positions. A gap equal to `limit` is a normal entry, so a reader recognizes a filler by its value.
*Runs* have no fillers among the values: the symbol `limit` means `limit` zeros and no value, and
every smaller symbol means that many zeros and then a value.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError

Ints: TypeAlias = NDArray[np.signedinteger[Any] | np.unsignedinteger[Any]]
Positions: TypeAlias = NDArray[np.int64]

_CHUNK = 1 << 18


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


def _interleave(zeros: Ints, skips: Ints) -> Gaps:
    # Entry i follows its own skips and all earlier entries: it is at cumsum(skips + 1) - 1.
    ends = np.cumsum(skips + 1, dtype=np.int64)
    filler = np.ones(int(ends[-1]) if ends.size else 0, dtype=np.bool_)
    filler[ends - 1] = False
    gaps = np.zeros(filler.size, dtype=np.uint16)
    gaps[ends - 1] = zeros
    return Gaps(gaps, filler)


def to_gaps(positions: Ints, limit: int) -> Gaps:
    """Return `positions` as gaps in [0, limit] with fillers.

    Args:
        positions: Strictly increasing, counted from 0.
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
    """Return the position of every entry, including fillers, in an array of `size`.

    Raises:
        StorageError: An entry lies outside the array.
    """
    positions = np.cumsum(gaps.astype(np.int64) + 1) - 1
    _check_end(positions, size)
    return positions


def to_runs(zeros: Ints, limit: int) -> NDArray[np.uint16]:
    """Return `zeros`, the number of zeros before each value, as runs in [0, limit].

    Args:
        zeros: Not negative.
        limit: The symbol for "limit zeros and no value", in [1, 65535].

    >>> to_runs(np.array([2, 3]), 3).tolist()
    [2, 3, 0]
    """
    skips = zeros // limit
    if not skips.any():
        return zeros.astype(np.uint16)
    runs, filler = _interleave(zeros % limit, skips)
    runs[filler] = limit
    return runs


class RunPositions:
    """The positions of the values of runs, chunk by chunk: the inverse of `to_runs`.

    Attributes:
        count: How many values there are.
    """

    def __init__(self, runs: NDArray[np.uint16], limit: int, size: int) -> None:
        """Initialize from the `runs` of an array of `size`.

        Raises:
            StorageError: A symbol exceeds `limit`.
        """
        if runs.size and int(runs.max()) > limit:
            raise StorageError(
                f"The file is damaged: a run of zeros exceeds its limit of {limit}."
            )
        self._runs, self._limit, self._size = runs, limit, size
        self.count = int(np.count_nonzero(runs < limit))

    def __iter__(self) -> Iterator[Positions]:
        """Yield ascending positions.

        Raises:
            StorageError: The runs leave the array.
        """
        before = 0
        for start in range(0, self._runs.size, _CHUNK):
            runs = self._runs[start : start + _CHUNK]
            valued = runs < self._limit
            ends = np.cumsum(runs + valued, dtype=np.int64)
            ends += before
            _check_end(ends - 1, self._size)
            before = int(ends[-1])
            yield ends[valued] - 1


def _check_end(positions: Positions, size: int) -> None:
    if positions.size and int(positions[-1]) >= size:
        raise StorageError(
            f"The file is damaged: a sparse index reaches position {int(positions[-1])} in a "
            f"tensor of {size} weights."
        )

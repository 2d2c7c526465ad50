"""Disjoint sets of integers in numpy, used to merge channels that are the same."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


@dataclass(eq=False)
class UnionFind:
    """Disjoint sets of integers, each represented by its smallest, in any order of unions.

    -1 means no channel and represents itself. `unions` counts the steps that changed something.

    >>> sets = UnionFind()
    >>> sets.grow(4)
    array([0, 1, 2, 3])
    >>> sets.union(np.array([3, 2]), np.array([2, 1]))
    >>> sets.find(np.array([0, 1, 2, 3, -1]))
    array([ 0,  1,  1,  1, -1])
    """

    # the last entry belongs to -1 and is always -1
    _parent: Ids = field(default_factory=lambda: np.full(1, -1, dtype=np.int64))
    _size: int = 0
    unions: int = 0

    def __len__(self) -> int:
        return self._size

    def grow(self, count: int) -> Ids:
        """Return `count` new integers, each a set of its own."""
        needed = self._size + count
        if needed >= len(self._parent):
            bigger = np.arange(max(needed + 1, 2 * len(self._parent)), dtype=np.int64)
            bigger[: self._size] = self._parent[: self._size]
            bigger[-1] = -1
            self._parent = bigger
        fresh = np.arange(self._size, needed, dtype=np.int64)
        self._size = needed
        return fresh

    def find(self, members: Ids) -> Ids:
        """Return for each integer the representative of its set; same shape."""
        parents = roots = self._parent[members]
        above = self._parent[roots]
        while np.count_nonzero(above != roots):
            roots, above = above, self._parent[above]
        if roots is not parents:
            self._parent[members] = roots
        return roots

    def roots(self) -> Ids:
        """Return the representative of every integer in turn, and a last entry -1, for -1."""
        return self.find(np.append(np.arange(self._size), -1))

    def union(self, first: Ids, second: Ids) -> None:
        """Merge the sets of `first[i]` and `second[i]` for every `i`; none can be -1."""
        one, other = self.find(first), self.find(second)
        apart = one != other
        while np.count_nonzero(apart):
            low = np.minimum(one[apart], other[apart])
            high = np.maximum(one[apart], other[apart])
            np.minimum.at(self._parent, high, low)
            self.unions += 1
            # each root was merged with only the lowest of its partners; repeat for the others
            one, other = self.find(high), self.find(low)
            apart = one != other

"""Disjoint sets of integers, in numpy: which channels turned out to be one."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["Ids", "UnionFind"]

Ids = npt.NDArray[np.int64]


@dataclass(eq=False)
class UnionFind:
    """A forest of integers; the smallest of a set stands for it, whatever the order of unions.

    `unions` counts the calls that changed something.

    >>> sets = UnionFind()
    >>> sets.grow(4)
    array([0, 1, 2, 3])
    >>> sets.union(np.array([3, 2]), np.array([2, 1]))
    >>> sets.find(np.array([0, 1, 2, 3]))
    array([0, 1, 1, 1])
    """

    _parent: Ids = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _size: int = 0
    unions: int = 0

    def __len__(self) -> int:
        return self._size

    def grow(self, count: int) -> Ids:
        """Return `count` new integers, each a set of its own."""
        needed = self._size + count
        if needed > len(self._parent):
            bigger = np.arange(max(needed, 2 * len(self._parent)), dtype=np.int64)
            bigger[: self._size] = self._parent[: self._size]
            self._parent = bigger
        fresh = np.arange(self._size, needed, dtype=np.int64)
        self._size = needed
        return fresh

    def find(self, members: Ids) -> Ids:
        """Return for each integer the one that stands for its set; same shape."""
        roots = self._parent[members]
        while True:
            above = self._parent[roots]
            if np.array_equal(above, roots):
                break
            roots = above
        self._parent[members] = roots
        return roots

    def union(self, first: Ids, second: Ids) -> None:
        """Unite the sets of `first[i]` and `second[i]`, for every `i`."""
        while True:
            one, other = self.find(first), self.find(second)
            apart = one != other
            if not apart.any():
                return
            low = np.minimum(one[apart], other[apart])
            high = np.maximum(one[apart], other[apart])
            np.minimum.at(self._parent, high, low)
            self.unions += 1

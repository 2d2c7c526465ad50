"""Orders in which sets are contiguous."""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from nncfx.errors import ArgumentError
from nncfx.graph.consecutive_ones import contiguous_tree, frontier


def consecutive_order(sets: Sequence[int]) -> list[int] | None:
    """Return an order of all elements in which each of the bit sets is contiguous, or None."""
    try:
        return frontier(contiguous_tree(reduce(or_, sets, 0), sets))
    except ArgumentError:
        return None

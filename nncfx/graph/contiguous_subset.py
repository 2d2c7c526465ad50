"""Choose the sets to keep contiguous, by greatest total cost, if not all can be.

Choosing the family of greatest total cost that still has the consecutive-ones property is NP-hard
(M. R. Garey and D. S. Johnson, "Computers and Intractability", 1979, problem SR14), but splits:

* Two sets *overlap* when they share elements and neither holds the other. A family has the
  property exactly when each connected component of its overlap graph has it (D. R. Fulkerson and
  O. A. Gross, "Incidence matrices and interval graphs", Pacific J. Math. 15 (1965), 835-855), so
  components are solved separately; a set that overlaps no other can always be contiguous.
* Three sets lack the property exactly when each pair shares an element outside the third, or all
  three share an element and each has one that the others lack: the obstructions with three rows of
  A. Tucker, "A structure theorem for the consecutive 1's property", J. Comb. Theory B 12 (1972),
  153-162. Such triples only bound the branch and bound; the PQ-tree decides.

Sets are bit sets, as in `nncfx.graph.consecutive_ones`. Costs are not negative.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations
from operator import or_
from typing import Final, NamedTuple

import numpy as np

from nncfx.graph.consecutive_ones import PQTree, contiguous_tree, restricted

EXACT_SETS: Final = 128
"""Components with more sets are searched without branch and bound."""

EXACT_BRANCHES: Final = 10_000
"""Branches after which branch and bound gives up; 12 sets have fewer than 2**13."""

REPAIR_ROUNDS: Final = 600
"""Maximum rounds of drop and refill in a component whose optimum is not proven."""

REPAIR_WORK: Final = 1_200_000
"""Limit of rounds times sets squared, to which the time of drop and refill is proportional."""

LEAST_ROUNDS: Final = 50
"""Minimum rounds of drop and refill, however many sets there are."""


def contiguous_subset(
    sets: Sequence[int], costs: Sequence[float], required: Sequence[int] = ()
) -> list[int]:
    """Return the indices of the sets to keep contiguous, ascending, of greatest total cost.

    The returned sets together with `required`, which must have the consecutive-ones property, have
    it too. The result is optimal, unless branch and bound gives up on a component of the overlap
    graph (impossible up to 12 sets, not seen up to 16; see `EXACT_BRANCHES`); then it is the best
    found. It is deterministic, and its cost does not depend on how elements are numbered.

    Raises:
        ArgumentError: `required` lacks the consecutive-ones property.

    >>> contiguous_subset([0b011, 0b110, 0b101], [2, 3, 4])
    [1, 2]
    """
    family = [*sets, *required]
    chosen: list[int] = []
    for component in overlap_components(family):
        free = [index for index in component if index < len(sets)]
        bound = [family[index] for index in component if index >= len(sets)]
        # All searches below take the sets in this order.
        free.sort(key=lambda index: (-costs[index], index))
        search = _Search([sets[i] for i in free], [costs[i] for i in free], bound)
        chosen += [free[position] for position in search.best()]
    return sorted(chosen)


def overlap_components(sets: Sequence[int]) -> list[list[int]]:
    """Return the indices of the sets by connected component of the overlap graph.

    Two sets overlap when they share an element and neither holds the other. Components are sorted
    by their smallest index, and the indices within each are ascending.
    """
    unseen = set(range(len(sets)))
    components: list[list[int]] = []
    for start in range(len(sets)):
        if start not in unseen:
            continue
        unseen.remove(start)
        component = [start]
        for index in component:
            near = [other for other in unseen if _overlap(sets[index], sets[other])]
            unseen.difference_update(near)
            component += near
        components.append(sorted(component))
    return components


class _Branch(NamedTuple):
    """A node of the search: the sets taken, and those still open."""

    tree: PQTree
    value: float
    taken: tuple[int, ...]
    open: tuple[int, ...]
    conflicts: tuple[int, ...]
    """For each set, the bit set of the sets that cannot be taken with it and those taken."""


@dataclass(eq=False)
class _Search:
    """The search in one component; `sets` are sorted by descending cost."""

    sets: list[int]
    costs: list[float]
    required: list[int]
    _rows: dict[int, list[int]] = field(default_factory=dict)

    def best(self) -> list[int]:
        """Return the positions of the sets to keep contiguous."""
        everyone = range(len(self.sets))
        taken, is_optimal = self._greedy(everyone), False
        if len(taken) == len(self.sets):
            return taken
        if len(self.sets) <= EXACT_SETS:
            taken, is_optimal = self._exact(taken)
        return taken if is_optimal else self._repaired(taken)

    def _value(self, taken: Iterable[int]) -> float:
        return sum(self.costs[position] for position in taken)

    def _root(self) -> PQTree:
        """Return the tree restricted by the required sets."""
        return contiguous_tree(reduce(or_, self.sets + self.required, 0), self.required)

    def _greedy(self, positions: Iterable[int]) -> list[int]:
        """Return the sets taken by a greedy pass over `positions`."""
        tree = self._root()
        taken: list[int] = []
        for position in positions:
            narrower = restricted(tree, self.sets[position])
            if narrower is not None:
                tree = narrower
                taken.append(position)
        return taken

    def _exact(self, taken: list[int]) -> tuple[list[int], bool]:
        """Return the family of greatest cost by branch and bound, and whether it is optimal."""
        best, value = taken, self._value(taken)
        stack = [self._start()]
        for _ in range(EXACT_BRANCHES):
            if not stack:
                return best, True
            branch = stack.pop()
            if branch.value > value:
                best, value = list(branch.taken), branch.value
            if branch.open and branch.value + self._bound(branch) > value:
                first, *rest = branch.open
                stack.append(branch._replace(open=tuple(rest)))
                with_first = self._with(branch, first, rest)
                if with_first is not None:
                    stack.append(with_first)
        return best, not stack

    def _repaired(self, taken: list[int]) -> list[int]:
        """Return a family of at least the cost of `taken`, by local search.

        Each round drops some sets and refills in a random order. Families of equal cost replace
        each other, so the search moves along plateaus.
        """
        count = len(self.sets)
        # A fixed seed makes the result deterministic.
        rng = np.random.default_rng(0)
        best = current = taken
        value = best_value = self._value(taken)
        rounds = min(REPAIR_ROUNDS, max(LEAST_ROUNDS, REPAIR_WORK // count**2))
        for turn in range(rounds):
            dropped = 1 << (1 + turn % 3)
            kept = sorted(rng.permutation(current).tolist()[dropped:])
            others = sorted(set(range(count)).difference(kept))
            trial = self._greedy([*kept, *rng.permutation(others).tolist()])
            if (trial_value := self._value(trial)) >= value:
                current, value = trial, trial_value
            if value > best_value:
                best, best_value = current, value
        return best

    def _start(self) -> _Branch:
        conflicts = [0] * len(self.sets)
        for members in self.required:
            conflicts = list(map(or_, conflicts, self._conflicts_beside(members)))
        return _Branch(self._root(), 0, (), tuple(range(len(self.sets))), tuple(conflicts))

    def _with(self, branch: _Branch, position: int, rest: list[int]) -> _Branch | None:
        """Return the branch that also takes a set, or None if the set cannot be contiguous."""
        tree = restricted(branch.tree, self.sets[position])
        if tree is None:
            return None
        barred = branch.conflicts[position]
        if position not in self._rows:
            self._rows[position] = self._conflicts_beside(self.sets[position])
        return _Branch(
            tree,
            branch.value + self.costs[position],
            (*branch.taken, position),
            tuple(other for other in rest if not barred >> other & 1),
            tuple(map(or_, branch.conflicts, self._rows[position])),
        )

    def _bound(self, branch: _Branch) -> float:
        """Return an upper bound of the cost that open sets add, one per clique of conflicts."""
        bound = 0.0
        common: list[int] = []
        for position in branch.open:
            for index, members in enumerate(common):
                if members >> position & 1:
                    common[index] = members & branch.conflicts[position]
                    break
            else:
                common.append(branch.conflicts[position])
                bound += self.costs[position]
        return bound

    def _conflicts_beside(self, members: int) -> list[int]:
        """Return for each set the bit set of the sets that conflict with it and `members`."""
        conflicts = [0] * len(self.sets)
        # The parts of each set inside and outside `members`, all that the test needs.
        split = [(s & members, s & ~members) for s in self.sets]
        for (i, one), (j, other) in combinations(enumerate(split), 2):
            if _is_obstruction(members, one, other):
                conflicts[i] |= 1 << j
                conflicts[j] |= 1 << i
        return conflicts


def _overlap(one: int, other: int) -> bool:
    """Return whether two sets share an element and neither holds the other."""
    shared = one & other
    return bool(shared) and shared not in (one, other)


def _is_obstruction(members: int, one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether three sets lack the property; two are given inside and outside the first."""
    inside, beyond = one
    inside_too, beyond_too = other
    shared, shared_beyond = inside & inside_too, beyond & beyond_too
    if shared_beyond and shared not in (inside, inside_too):
        return True
    if not shared or shared_beyond in (beyond, beyond_too):
        return False
    return bool(members & ~(inside | inside_too))

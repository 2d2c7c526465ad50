"""The monotone bracket: the interval that can still contain the crossing of a threshold."""

import dataclasses
import math
from collections.abc import Iterable

from nncfx.search.resolution import Resolution
from nncfx.search.trials import Observation

# Positions of the scale differ by rounding only below this many cells.
_ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bracket:
    """An interval of levels with a feasible lower and an infeasible (or open) upper end.

    Attributes:
        low: highest level known to be feasible.
        high: lowest level known to be infeasible, or the open end.
    """

    low: float
    high: float

    @staticmethod
    def of(observations: Iterable[Observation], *, threshold: float, upper: float) -> "Bracket":
        """Return the bracket of a decreasing metric after `observations`.

        The upper end is the lowest infeasible level (a failed one is infeasible), the lower end
        the highest feasible level below it. Feasible levels above an infeasible one, which only
        noise can cause, are ignored.
        """
        seen = list(observations)
        feasible = {s.level for s in seen if s.value is not None and s.value >= threshold}
        high = min([upper, *(s.level for s in seen if s.level not in feasible)])
        return Bracket(
            low=max((level for level in feasible if level < high), default=0.0), high=high
        )

    def cells(self, resolution: Resolution) -> float:
        """Return the width in cells of `resolution`."""
        return resolution.cells(self.high) - resolution.cells(self.low)

    def is_closed(self, resolution: Resolution) -> bool:
        """Return whether the bracket is no wider than one cell."""
        return self.cells(resolution) <= 1 + _ROUNDING

    def halvings(self, resolution: Resolution) -> int:
        """Return the number of evaluations in which bisection always closes the bracket."""
        return math.ceil(math.log2(max(self.cells(resolution), 1.0)) - _ROUNDING)

    def middle(self, resolution: Resolution) -> float:
        """Return the level that halves the bracket, counted in cells."""
        return resolution.level((resolution.cells(self.high) + resolution.cells(self.low)) / 2)

"""The resolution of a level: tolerances, and the scale on which they are equal."""

import dataclasses
import math

_FINE_FROM = 0.9
_FINE_FACTOR = 5
_NEARLY_ONE = 0.999


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resolution:
    """A scale of the level on which one unit, a cell, is the resolution of the search.

    Up to about level 0.9 a cell is `tolerance` wide; above it a fifth of that, because there a
    small step of the level is a large step of what remains (0.98 keeps twice as much as 0.99). The
    finer cells start one tolerance below 0.9, so an interval of one cell that extends beyond 0.9
    is never wider than the fine tolerance.

    Attributes:
        tolerance: width of a coarse cell, in (0, 0.25].

    >>> scale = Resolution(tolerance=0.01)
    >>> round(scale.cells(0.5), 6), round(scale.cells(0.95), 6), round(scale.level(114.0), 6)
    (50.0, 119.0, 0.94)
    """

    tolerance: float = 0.01

    @property
    def _knee(self) -> float:
        return _FINE_FROM - self.tolerance

    def cells(self, level: float) -> float:
        """Return the position of `level` on the scale; 0 at level 0, increasing."""
        fine = max(0.0, level - self._knee) * _FINE_FACTOR
        return (min(level, self._knee) + fine) / self.tolerance

    def level(self, cells: float) -> float:
        """Return the level at a position of the scale: the inverse of `cells`."""
        coarse = min(cells * self.tolerance, self._knee)
        return coarse + max(0.0, cells * self.tolerance - self._knee) / _FINE_FACTOR


def remaining_decades(level: float) -> float:
    """Return by how many decades a level shrinks what remains; 3 at level 1.

    >>> round(remaining_decades(0.9), 2), round(remaining_decades(1.0), 2)
    (1.0, 3.0)
    """
    return -math.log10(1 - _NEARLY_ONE * level)


def stretch(level: float) -> float:
    """Return the input of the Gaussian process for a level: 0 at 0, 2 at 1, increasing.

    Near 0 it follows the level, near 1 the decades of what remains, because accuracy bends sharply
    at very high levels; each contributes half of the range.

    >>> round(stretch(0.5), 2), round(stretch(0.99), 2)
    (0.6, 1.64)
    """
    return level + remaining_decades(level) / 3

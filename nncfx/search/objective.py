"""Stage 2: the best objective within the feasible levels."""

from collections.abc import Sequence

from nncfx.search.settings import SearchSettings
from nncfx.search.trials import Observation

__all__ = ["next_objective_level"]


def next_objective_level(
    observations: Sequence[Observation], upper: float, *, maximize: bool, settings: SearchSettings
) -> float | None:
    """Return the level to measure next, or None when the search is over."""
    return None

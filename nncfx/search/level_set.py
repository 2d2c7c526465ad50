"""Stage 1: the highest level at which a metric still reaches its threshold."""

from collections.abc import Sequence

from nncfx.search.bracket import Bracket
from nncfx.search.settings import SearchSettings
from nncfx.search.trials import Observation

__all__ = ["find_level", "next_level"]


def next_level(
    observations: Sequence[Observation], threshold: float, settings: SearchSettings
) -> float | None:
    """Return the level to measure next, or None when the search is over."""
    bracket = Bracket.of(observations, threshold=threshold, upper=settings.upper)
    measured = sum(seen.level > 0 for seen in observations)
    if measured >= settings.max_evaluations or bracket.is_closed(settings.resolution):
        return None
    return round(bracket.middle(settings.resolution), 6)

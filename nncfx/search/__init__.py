"""Search for the compression level: sees only evaluate(level) -> measurement."""

from nncfx.search.results import LevelResult, ObjectiveResult, SearchResult
from nncfx.search.settings import SearchSettings
from nncfx.search.stages import search_level
from nncfx.search.study import Study
from nncfx.search.trials import Measurement, Observation, Trial

__all__ = [
    "LevelResult",
    "Measurement",
    "ObjectiveResult",
    "Observation",
    "SearchResult",
    "SearchSettings",
    "Study",
    "Trial",
    "search_level",
]

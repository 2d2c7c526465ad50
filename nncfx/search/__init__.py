"""Search for the compression level: sees only evaluate(level) -> measurement."""

from nncfx.search.baselines import bisect_level, condensa_literal
from nncfx.search.curve import Curve, posterior_curve
from nncfx.search.find import find_level, optimize_objective
from nncfx.search.results import LevelResult, ObjectiveResult, SearchResult
from nncfx.search.settings import SearchSettings
from nncfx.search.stages import search_level
from nncfx.search.study import Study
from nncfx.search.trials import JSONValue, Measurement, Observation, Trial
from nncfx.search.trust_region import TrustRegion, next_in_trust_region

__all__ = [
    "Curve",
    "JSONValue",
    "LevelResult",
    "Measurement",
    "ObjectiveResult",
    "Observation",
    "SearchResult",
    "SearchSettings",
    "Study",
    "Trial",
    "TrustRegion",
    "bisect_level",
    "condensa_literal",
    "find_level",
    "next_in_trust_region",
    "optimize_objective",
    "posterior_curve",
    "search_level",
]

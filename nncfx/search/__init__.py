"""Search for compression settings: sees only evaluate(level or candidate) -> measurement."""

from nncfx.search.baselines import bisect_level, condensa_literal
from nncfx.search.candidates import CandidateStudy, CandidateTrial, nearest_trial
from nncfx.search.curve import Curve, posterior_curve
from nncfx.search.find import find_level, optimize_objective
from nncfx.search.hopeless import is_hopeless
from nncfx.search.noise import CAUTION, Difference, paired_difference
from nncfx.search.problem import Problem, SpaceSettings
from nncfx.search.results import LevelResult, ObjectiveResult, SearchResult
from nncfx.search.search_space import SpaceResult, search_space
from nncfx.search.settings import SearchSettings
from nncfx.search.space import Candidate, Choice, Dimension, Range, Space
from nncfx.search.stages import search_level
from nncfx.search.study import Study
from nncfx.search.trials import JSONValue, Measurement, Observation, Trial
from nncfx.search.trust_region import TrustRegion, next_in_trust_region

__all__ = [
    "CAUTION",
    "Candidate",
    "CandidateStudy",
    "CandidateTrial",
    "Choice",
    "Curve",
    "Difference",
    "Dimension",
    "JSONValue",
    "LevelResult",
    "Measurement",
    "ObjectiveResult",
    "Observation",
    "Problem",
    "Range",
    "SearchResult",
    "SearchSettings",
    "Space",
    "SpaceResult",
    "SpaceSettings",
    "Study",
    "Trial",
    "TrustRegion",
    "bisect_level",
    "condensa_literal",
    "find_level",
    "is_hopeless",
    "nearest_trial",
    "next_in_trust_region",
    "optimize_objective",
    "paired_difference",
    "posterior_curve",
    "search_level",
    "search_space",
]

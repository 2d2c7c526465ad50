"""Search for compression settings, using only evaluate(level or candidate) -> measurement."""

from nncfx.renamed import attribute
from nncfx.search.early_stopping import should_stop_early
from nncfx.search.journaled import known_to
from nncfx.search.many.candidates import CandidateStudy, CandidateTrial, nearest_trial
from nncfx.search.many.problem import Problem, SpaceSettings
from nncfx.search.many.search_space import SpaceResult, search_space
from nncfx.search.many.space import Candidate, Choice, Dimension, Range, Space
from nncfx.search.many.trust_region import TrustRegion, next_in_trust_region
from nncfx.search.model.curve import PosteriorCurve, posterior_curve
from nncfx.search.noise import CAUTION, Difference, paired_difference
from nncfx.search.one_level.baselines import bisect_level, condensa_literal
from nncfx.search.one_level.find import find_level, optimize_objective
from nncfx.search.one_level.results import LevelResult, ObjectiveResult, SearchResult
from nncfx.search.one_level.stages import search_level
from nncfx.search.one_level.study import Study
from nncfx.search.settings import SearchSettings
from nncfx.search.trials import JSONValue, Measurement, Observation, Trial
from nncfx.search.workers.executor import Done, Executor, SplitEvaluation
from nncfx.search.workers.processes import LocalExecutor
from nncfx.search.workers.ray_executor import RayExecutor

__all__ = [
    "CAUTION",
    "Candidate",
    "CandidateStudy",
    "CandidateTrial",
    "Choice",
    "Difference",
    "Dimension",
    "Done",
    "Executor",
    "JSONValue",
    "LevelResult",
    "LocalExecutor",
    "Measurement",
    "ObjectiveResult",
    "Observation",
    "PosteriorCurve",
    "Problem",
    "Range",
    "RayExecutor",
    "SearchResult",
    "SearchSettings",
    "Space",
    "SpaceResult",
    "SpaceSettings",
    "SplitEvaluation",
    "Study",
    "Trial",
    "TrustRegion",
    "bisect_level",
    "condensa_literal",
    "find_level",
    "known_to",
    "nearest_trial",
    "next_in_trust_region",
    "optimize_objective",
    "paired_difference",
    "posterior_curve",
    "search_level",
    "search_space",
    "should_stop_early",
]


def __getattr__(name: str) -> object:
    return attribute(__name__, name)

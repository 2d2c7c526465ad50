"""The search over several dimensions, over the trials of a run."""

from collections.abc import Callable

from nncfx.compressor.candidate import Forge
from nncfx.compressor.spelling import candidate_words
from nncfx.compressor.trials import Plan, Trials
from nncfx.search import (
    Candidate,
    CandidateStudy,
    CandidateTrial,
    Problem,
    Range,
    Space,
    SpaceResult,
    SpaceSettings,
    nearest_trial,
    search_space,
)

__all__ = ["search_by_candidate", "weights_of"]

_LEVEL = "level"


def search_by_candidate(
    trials: Trials,
    forge_of: Callable[[Candidate], Forge],
    journal: CandidateStudy,
    space: Space,
    settings: SpaceSettings,
    *,
    warm_start: bool,
) -> SpaceResult:
    """Return the search of the candidate with the best objective that keeps the threshold.

    Args:
        trials: Evaluates candidates.
        forge_of: From a candidate to what compresses by its scheme.
        journal: The study.
        space: What can be chosen; a dimension "level" is what schemes are applied at, 0 without.
        settings: How long to look.
        warm_start: Whether trials begin with the weights of the nearest one.

    Raises:
        SearchError: as `search_space`.
    """

    def evaluate(candidate: Candidate) -> dict[str, float]:
        number = len(journal.trials)
        plan = Plan(
            place=f"trial {number}, {candidate_words(candidate)}",
            name=f"trial-{number}",
            level=float(candidate.get(_LEVEL, 0.0)),
            start=_start(journal, candidate, space) if warm_start else None,
            finished=(),
        )
        found = trials.run(forge_of(candidate), plan)
        counts = {
            name: float(value)
            for name, value in found.details.items()
            if isinstance(value, int | float)
        }
        return {"metric": found.metric, "objective": found.objective, **counts}

    problem = Problem(
        space=space,
        objectives={"objective": "maximize" if trials.objective.maximize else "minimize"},
        at_least={"metric": trials.threshold},
    )
    return search_space(evaluate, problem, settings=settings, study=journal)


def weights_of(trial: CandidateTrial) -> str:
    """Return the name of the weights that a trial leaves."""
    return f"trial-{trial.number}"


def _start(journal: CandidateStudy, candidate: Candidate, space: Space) -> str | None:
    """Return the weights of the nearest trial of which no range lies higher."""
    ranges = [one.name for one in space if isinstance(one, Range)]
    below = [
        trial
        for trial in journal.trials
        if all(float(trial.candidate[name]) <= float(candidate[name]) for name in ranges)
    ]
    nearest = nearest_trial(below, candidate, space)
    return None if nearest is None else weights_of(nearest)

"""The search of one level, over the trials of a run."""

from collections.abc import Sequence

from nncfx.compressor.trials.candidate import CandidateFactory
from nncfx.compressor.trials.trial_runner import Plan, Trials
from nncfx.search import (
    Measurement,
    SearchResult,
    SearchSettings,
    Study,
    Trial,
    search_level,
)

__all__ = ["plan_of", "search_by_level"]


def search_by_level(
    trials: Trials,
    factory: CandidateFactory,
    journal: Study,
    dense: Measurement,
    settings: SearchSettings,
    *,
    warm_start: bool,
) -> SearchResult:
    """Return the search of the level with the best objective that keeps the threshold.

    Raises:
        SearchError: as `search_level`.
    """

    def evaluate(level: float) -> Measurement:
        return trials.run(plan_of(level, journal.trials, factory, warm_start=warm_start))

    return search_level(
        evaluate,
        threshold=trials.threshold,
        maximize=trials.objective.maximize,
        at_zero=dense,
        study=journal,
        settings=settings,
    )


def plan_of(
    level: float, before: Sequence[Trial], factory: CandidateFactory, *, warm_start: bool
) -> Plan:
    """Return what the trial of a level does, or did, after the trials `before` it.

    A warm start begins with the weights nearest to `level` that lack nothing which it keeps.
    """
    done = [t for t in before if t.measurement is not None and t.level > 0]
    below = [t for t in done if t.level < level] if warm_start else []
    nearest = max(below, key=lambda trial: trial.level, default=None)
    return Plan(
        place=f"trial {len(before)}, level {level:.4g}",
        name=f"level-{level!r}",
        factory=lambda: factory,
        level=level,
        start=None
        if nearest is None
        else plan_of(nearest.level, before[: nearest.number], factory, warm_start=warm_start),
        finished=[t.measurement.details for t in done if t.measurement is not None],
    )

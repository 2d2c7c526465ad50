"""The search of one level, over the trials of a run."""

import dataclasses
from collections.abc import Sequence

from nncfx.compressor.trials.candidate import CandidateFactory
from nncfx.compressor.trials.side_by_side import NoTimer
from nncfx.compressor.trials.trial_runner import TrialPlan, Trials
from nncfx.search import (
    Measurement,
    SearchResult,
    SearchSettings,
    SplitEvaluation,
    Study,
    Trial,
    known_to,
    search_level,
)


def search_by_level(
    trials: Trials,
    factory: CandidateFactory,
    journal: Study,
    dense: Measurement,
    settings: SearchSettings,
    *,
    warm_start: bool,
) -> SearchResult:
    """Search for the level with the best objective that keeps the threshold.

    Raises:
        SearchError: as `search_level`.
    """

    def plan(level: float) -> TrialPlan:
        return plan_of(level, journal.trials, factory, warm_start=warm_start)

    beside = SplitEvaluation[float, Measurement](
        prepare=lambda level, after: (level, tuple(journal.trials[:after])),
        work=_Work(
            trials=trials.for_workers(),
            factory=dataclasses.replace(factory, timer=NoTimer()),
            warm_start=warm_start,
        ),
        finish=lambda level, found: trials.ended(plan(level), found),
    )
    return search_level(
        (lambda level: trials.run(plan(level))) if trials.executor is None else beside,
        threshold=trials.threshold,
        maximize=trials.objective.maximize,
        at_zero=dense,
        study=journal,
        settings=settings,
        executor=trials.executor,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Work:
    """The work of a worker, with everything needed for it."""

    trials: Trials
    factory: CandidateFactory
    warm_start: bool

    def __call__(self, sent: tuple[float, Sequence[Trial]]) -> Measurement:
        level, before = sent
        return self.trials.begun(plan_of(level, before, self.factory, warm_start=self.warm_start))


def plan_of(
    level: float, before: Sequence[Trial], factory: CandidateFactory, *, warm_start: bool
) -> TrialPlan:
    """Return the plan of the trial of a level, after the trials `before` it.

    A warm start uses the weights of the nearest finished trial of a lower level.
    """
    done = [t for t in before if t.measurement is not None and t.level > 0]
    below = [t for t in done if t.level < level] if warm_start else []
    nearest = max(below, key=lambda trial: trial.level, default=None)
    return TrialPlan(
        place=f"trial {len(before)}, level {level:.4g}",
        name=f"level-{level!r}",
        factory=lambda: factory,
        level=level,
        start=None
        if nearest is None
        else plan_of(nearest.level, known_to(nearest, before), factory, warm_start=warm_start),
        finished=[t.measurement.details for t in done if t.measurement is not None],
    )

"""The two stages as loops over a study: ask for a level, measure it, record it."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import SupportsFloat

from nncfx.errors import ArgumentError, SearchError
from nncfx.search.one_level.bracket import Bracket
from nncfx.search.one_level.confidence_bound import next_objective_levels
from nncfx.search.one_level.simultaneous import next_levels
from nncfx.search.one_level.study import Study, level_of
from nncfx.search.settings import SearchSettings
from nncfx.search.trials import Measurement, Observation, Stage, Trial
from nncfx.search.workers.driver import Driver, Point
from nncfx.search.workers.executor import Executor, split

# By then bisection of the whole range is at about level 0.1: the search would not succeed.
_HOPELESS = 4
# Trials of one search take about equally long, and each improves the choice of the others.
_GRACE = 0.3


def check_threshold(threshold: object) -> None:
    """Refuse a threshold that cannot be compared with a metric.

    Raises:
        ArgumentError: the threshold is not a number, or not finite.
    """
    if not (isinstance(threshold, SupportsFloat) and math.isfinite(threshold)):
        raise ArgumentError(
            f"threshold is {threshold}, and no metric can be compared with it. "
            "Write the least metric that is accepted, such as 0.9."
        )


def run_accuracy_stage(
    study: Study,
    evaluate: Callable[[float], Measurement],
    threshold: float,
    settings: SearchSettings,
    executor: Executor | None = None,
) -> Bracket:
    """Run the rest of stage 1, and return the bracket of the crossing.

    Raises:
        SearchError: the dense model is below the threshold, or the first four trials failed.
    """

    def known() -> list[Observation]:
        trials = of_stages(study, "dense", "accuracy")
        _check_any_succeeded(trials, settings)
        _check_dense(trials, threshold)
        return [
            dataclasses.replace(
                seen, value=seen.value - settings.caution * (seen.standard_error or 0.0)
            )
            if seen.value is not None
            else seen
            for seen in metrics_of(trials)
        ]

    def propose(pending: Sequence[float], count: int) -> list[float]:
        free = len(of_stages(study, "dense"))
        return next_levels(known(), threshold, settings, free=free, pending=pending, count=count)

    _run(study, "accuracy", evaluate, propose, executor)
    return Bracket.of(known(), threshold=threshold, upper=settings.upper)


def run_objective_stage(
    study: Study,
    evaluate: Callable[[float], Measurement],
    upper: float,
    settings: SearchSettings,
    *,
    maximize: bool,
    executor: Executor | None = None,
) -> None:
    """Run the rest of stage 2 on the levels of (0, upper]."""

    def propose(pending: Sequence[float], count: int) -> list[float]:
        left = settings.max_evaluations - len(of_stages(study, "objective")) - len(pending)
        return next_objective_levels(
            objectives_of(study.trials),
            upper,
            settings,
            maximize=maximize,
            pending=pending,
            count=min(count, left),
        )

    _run(study, "objective", evaluate, propose, executor)


def _run(
    study: Study,
    stage: Stage,
    evaluate: Callable[[float], Measurement],
    propose: Callable[[Sequence[float], int], Sequence[float]],
    executor: Executor | None,
) -> None:
    """Evaluate proposals of `propose` until there are none, here or on the workers."""
    if executor is None:
        while levels := propose((), 1):
            study.run(stage, levels[0], evaluate)
        return

    def points(pending: Sequence[Point], count: int) -> list[Point]:
        levels = propose([level_of(point) for point in pending], count)
        return [{"stage": stage, "level": level} for level in levels]

    Driver(
        study=study,
        executor=executor,
        evaluation=split(evaluate),
        argument_of=level_of,
        record=study.record_lease,
        grace=_GRACE,
    ).run(points)


def of_stages(study: Study, *stages: Stage) -> list[Trial]:
    """Return the trials of these stages, in order."""
    return [trial for trial in study.trials if trial.stage in stages]


def metrics_of(trials: Sequence[Trial]) -> list[Observation]:
    """Return the observations of the metric in the trials."""
    return [
        Observation(
            level=trial.level,
            value=None if trial.measurement is None else trial.measurement.metric,
            standard_error=None if trial.measurement is None else trial.measurement.standard_error,
        )
        for trial in trials
    ]


def objectives_of(trials: Sequence[Trial]) -> list[Observation]:
    """Return the observations of the objective in the trials."""
    return [
        Observation(
            level=trial.level,
            value=None if trial.measurement is None else trial.measurement.objective,
        )
        for trial in trials
    ]


def _check_any_succeeded(trials: Sequence[Trial], settings: SearchSettings) -> None:
    tried = [trial for trial in trials if trial.stage == "accuracy"]
    enough = min(_HOPELESS, settings.max_evaluations)
    if len(tried) >= enough and all(trial.state == "failed" for trial in tried):
        raise SearchError(
            f"The first {len(tried)} trials all failed, the last one at level "
            f"{tried[-1].level:g} ({tried[-1].error}), so the search has nothing to go by. "
            "Fix the evaluation, and delete the journal if there is one."
        )


def _check_dense(trials: Sequence[Trial], threshold: float) -> None:
    for trial in trials:
        if trial.level == 0 and not trial.is_feasible(threshold):
            found = "no result" if trial.measurement is None else f"{trial.measurement.metric:g}"
            raise SearchError(
                f"The metric at level 0 is {found}, below the threshold {threshold:g}, so no "
                "compressed model can be accepted either. Lower the threshold."
            )

"""Condensa's two-stage constrained search over one level."""

from collections.abc import Callable

from nncfx.errors import ArgumentError, SearchError
from nncfx.search.bracket import Bracket
from nncfx.search.level_set import next_level
from nncfx.search.objective import next_objective_level
from nncfx.search.results import SearchResult
from nncfx.search.settings import SearchSettings
from nncfx.search.study import Study
from nncfx.search.trials import Measurement, Observation, Trial

__all__ = ["search_level"]

# Bisection from the whole range is below level 0.1 by then: if nothing worked, nothing will.
_HOPELESS = 4


def search_level(
    evaluate: Callable[[float], Measurement],
    *,
    threshold: float,
    maximize: bool,
    at_zero: Measurement,
    study: Study | None = None,
    settings: SearchSettings | None = None,
) -> SearchResult:
    """Search the level with the best objective whose metric is at least `threshold`.

    Stage 1 finds s_acc, the highest level that is feasible (see `find_level`); stage 2 looks for
    the best objective within (0, s_acc] (see `optimize_objective`), starting from the
    objectives that stage 1 measured on its way. No level is measured twice. The dense model is
    trial 0 and always feasible, so there is always an answer.

    Args:
        evaluate: compresses to a level in (0, 1) and measures the result. What it raises makes the trial a
            failed one, which counts as infeasible.
        threshold: the least metric that is accepted.
        maximize: whether a larger objective is the better one.
        at_zero: the measurement of the dense model. When `study` already holds one, that one is used.
        study: the journal; without one the search cannot be resumed.
        settings: how closely and how long to look.

    Raises:
        SearchError: the dense model is below the threshold, the journal belongs to another search, or
            the first four trials failed.
        ArgumentError: `at_zero` is not finite.

    Source: Joseph et al., "A Programmable Approach to Neural Network Compression", Algorithm 1.

    >>> result = search_level(
    ...     lambda level: Measurement(metric=1 - level**4, objective=1 / (1 - level)),
    ...     threshold=0.9,
    ...     maximize=True,
    ...     at_zero=Measurement(metric=1.0, objective=1.0),
    ... )
    >>> 0.55 < result.level <= 0.1**0.25
    True
    """
    settings = settings or SearchSettings()
    study = study or Study()
    study.bind({"threshold": threshold, "maximize": maximize, **settings.to_json()})
    _measure_dense(study, at_zero, threshold)
    _run_accuracy_stage(study, evaluate, threshold, settings)
    level_accuracy = _level_accuracy(study, threshold, settings)
    _run_objective_stage(study, evaluate, (level_accuracy, maximize), settings)
    feasible = [trial for trial in study.trials if trial.is_feasible(threshold)]
    return SearchResult(
        trials=tuple(study.trials),
        threshold=threshold,
        maximize=maximize,
        level_accuracy=level_accuracy,
        chosen=_best(feasible, maximize=maximize),
    )


def _measure_dense(study: Study, at_zero: Measurement, threshold: float) -> None:
    if not at_zero.is_finite:
        raise ArgumentError(
            f"at_zero has metric {at_zero.metric} and objective {at_zero.objective}; both must be "
            "finite numbers. Measure the dense model first."
        )
    if not study.trials:
        study.run("dense", 0.0, lambda _: at_zero)
    dense = study.trials[0].measurement
    if dense is None or dense.metric < threshold:
        raise SearchError(
            f"The dense model has metric {None if dense is None else dense.metric}, below the "
            f"threshold {threshold}, so no compressed one is accepted. Lower the threshold."
        )


def _run_accuracy_stage(
    study: Study,
    evaluate: Callable[[float], Measurement],
    threshold: float,
    settings: SearchSettings,
) -> None:
    while True:
        trials = _of(study, "dense", "accuracy")
        if len(trials) > _HOPELESS and all(trial.state == "failed" for trial in trials[1:]):
            raise SearchError(
                f"All {len(trials) - 1} trials so far failed, the last one at level "
                f"{trials[-1].level:g} with {trials[-1].error}. Mend the evaluation and delete "
                "the journal, if there is one."
            )
        level = next_level(_metrics(trials), threshold, settings)
        if level is None:
            return
        study.run("accuracy", level, evaluate)


def _level_accuracy(study: Study, threshold: float, settings: SearchSettings) -> float:
    bracket = Bracket.of(
        _metrics(_of(study, "dense", "accuracy")), threshold=threshold, upper=settings.upper
    )
    return bracket.low


def _run_objective_stage(
    study: Study,
    evaluate: Callable[[float], Measurement],
    problem: tuple[float, bool],
    settings: SearchSettings,
) -> None:
    upper, maximize = problem
    while len(_of(study, "objective")) < settings.max_evaluations:
        level = next_objective_level(
            _objectives(study.trials), upper, maximize=maximize, settings=settings
        )
        if level is None:
            return
        study.run("objective", level, evaluate)


def _of(study: Study, *stages: str) -> list[Trial]:
    return [trial for trial in study.trials if trial.stage in stages]


def _metrics(trials: list[Trial]) -> list[Observation]:
    return [
        Observation(
            level=trial.level,
            value=None if trial.measurement is None else trial.measurement.metric,
        )
        for trial in trials
    ]


def _objectives(trials: list[Trial]) -> list[Observation]:
    return [
        Observation(
            level=trial.level,
            value=None if trial.measurement is None else trial.measurement.objective,
        )
        for trial in trials
    ]


def _best(trials: list[Trial], *, maximize: bool) -> Trial:
    def rank(trial: Trial) -> tuple[float, float]:
        value = 0.0 if trial.measurement is None else trial.measurement.objective
        return (-value if maximize else value, trial.level)

    return min(trials, key=rank)

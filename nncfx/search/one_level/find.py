"""Each stage as a function of plain numbers."""

from collections.abc import Callable, Sequence

from nncfx.errors import ArgumentError, SearchError
from nncfx.search.noise import CAUTION
from nncfx.search.one_level.confidence_bound import next_objective_level
from nncfx.search.one_level.loop import check_threshold, metrics_of, of_stages, run_accuracy_stage
from nncfx.search.one_level.results import LevelResult, ObjectiveResult
from nncfx.search.one_level.study import Study
from nncfx.search.settings import SearchSettings
from nncfx.search.trials import Measurement, Observation
from nncfx.search.workers.driver import driving
from nncfx.search.workers.executor import Executor, SplitEvaluation


def find_level(  # noqa: PLR0913 (entry point: one argument per setting)
    evaluate: Callable[[float], float | tuple[float, float]],
    threshold: float,
    *,
    at_zero: float | None = None,
    tolerance: float = 0.01,
    max_evaluations: int = 10,
    upper: float = 1.0,
    seed: int = 0,
    caution: float = CAUTION,
    study: Study | None = None,
    executor: Executor | None = None,
) -> LevelResult:
    """Find the highest level at which `evaluate(level)` is still at least `threshold`.

    The metric is assumed to decrease with the level, except for noise. The returned level was
    measured and found feasible (level 0 can be known from `at_zero`); without noise the true
    crossing is at most `tolerance` above it, a fifth of that above level 0.9. The default settings
    take at most 9 evaluations, and one more only if no level looks feasible.

    Args:
        evaluate: measures the metric at a level in [0, 1). If it raises or returns a number that
            is not finite, the level counts as infeasible; a machine error ends the search. For a
            metric measured on a sample, return a pair with its standard error (see
            `paired_difference`): the level is then feasible if it is `caution` standard errors
            above the threshold.
        threshold: the smallest acceptable metric.
        at_zero: the metric at level 0, if known: it costs no evaluation.
        tolerance: the resolution of the level, in (0, 0.25].
        max_evaluations: the most evaluations.
        upper: open upper end of the levels to try, in (0, 1].
        seed: of the fits of the Gaussian process.
        caution: standard errors to keep as a distance from the threshold, at least 0.
        study: the journal; an interrupted search continues from it.
        executor: evaluates several levels at the same time, such as `LocalExecutor(2)`; None: one
            after the other, here.

    Raises:
        SearchError: level 0 itself is infeasible, the first four evaluations failed, or the
            journal belongs to another search.
        MachineError: memory, disk or a device failed; run again to continue from the journal.
        ArgumentError: a setting is out of its range.
        MissingExtraError: BoTorch is not installed.

    >>> found = find_level(lambda level: 0.9 - 0.5 * level**3, threshold=0.88, at_zero=0.9)
    >>> 0.04 ** (1 / 3) - 0.01 < found.level <= 0.04 ** (1 / 3)
    True
    """
    settings = SearchSettings(
        tolerance=tolerance,
        max_evaluations=max_evaluations,
        upper=upper,
        seed=seed,
        caution=caution,
    )
    check_threshold(threshold)
    study = study or Study()
    study.bind({"threshold": threshold, **settings.to_json()})
    if at_zero is not None and not study.trials:
        study.run("dense", 0.0, lambda _: Measurement(metric=at_zero, objective=0.0))
    measure = SplitEvaluation[float, Measurement](
        prepare=lambda level, _: level,
        work=evaluate,
        finish=lambda level, found: _measured(found, level),
    )
    with driving(executor, measure):
        bracket = run_accuracy_stage(study, measure, threshold, settings, executor)
    return LevelResult(
        level=bracket.low,
        evaluations=tuple(metrics_of(of_stages(study, "accuracy"))),
        bracket=(bracket.low, bracket.high),
        threshold=threshold,
    )


def _measured(found: float | tuple[float, float], level: float) -> Measurement:
    metric, error = found if isinstance(found, tuple) else (found, None)
    return Measurement(metric=metric, objective=level, standard_error=error)


def optimize_objective(  # noqa: PLR0913 (entry point: one argument per setting)
    evaluate: Callable[[float], float],
    upper: float,
    *,
    maximize: bool,
    observations: Sequence[Observation] = (),
    tolerance: float = 0.01,
    max_evaluations: int = 10,
    seed: int = 0,
) -> ObjectiveResult:
    """Find the level in (0, upper] with the best `evaluate(level)`.

    Confidence-bound search on a Gaussian process, which starts from `observations` and stops when
    the next level is within `tolerance` of a measured one.

    Args:
        evaluate: measures the objective at a level.
        upper: highest admissible level, in [0, 1).
        maximize: whether a larger objective is better.
        observations: earlier measurements; those beyond `upper` only inform the model.
        tolerance: the resolution of the level, in (0, 0.25]; a fifth of it above level 0.9.
        max_evaluations: the most evaluations.
        seed: of the fits of the Gaussian process.

    Raises:
        SearchError: nothing was measured successfully in [0, upper].
        ArgumentError: a setting is out of its range.
        MissingExtraError: BoTorch is not installed.

    >>> found = optimize_objective(lambda level: (level - 0.3) ** 2, 0.8, maximize=False)
    >>> abs(found.level - 0.3) < 0.02
    True
    """
    settings = SearchSettings(tolerance=tolerance, max_evaluations=max_evaluations, seed=seed)
    if not 0 <= upper < 1:
        raise ArgumentError(
            f"upper is {upper}; it is the highest admissible level and lies in [0, 1). "
            "Give the level that find_level returned."
        )
    study = Study()

    def measure(level: float) -> Measurement:
        value = float(evaluate(level))
        return Measurement(metric=value, objective=value)

    while len(study.trials) < settings.max_evaluations:
        known = [*observations, *metrics_of(study.trials)]
        level = next_objective_level(known, upper, settings, maximize=maximize)
        if level is None:
            break
        study.run("objective", level, measure)
    found = metrics_of(study.trials)
    return _best_within([*observations, *found], upper, maximize=maximize, evaluations=found)


def _best_within(
    observations: Sequence[Observation],
    upper: float,
    *,
    maximize: bool,
    evaluations: Sequence[Observation],
) -> ObjectiveResult:
    known = [(o.value, o.level) for o in observations if o.value is not None and o.level <= upper]
    if not known:
        raise SearchError(
            f"No level up to {upper:g} could be measured, so none is the best. "
            "Fix the evaluation; its errors were logged."
        )
    value, level = min(known, key=lambda pair: (-pair[0] if maximize else pair[0], pair[1]))
    return ObjectiveResult(level=level, value=value, evaluations=tuple(evaluations))

"""Condensa's two-stage constrained search over one level."""

from collections.abc import Callable

from nncfx.errors import ArgumentError
from nncfx.search.one_level.loop import check_threshold, run_accuracy_stage, run_objective_stage
from nncfx.search.one_level.results import SearchResult, best_trial
from nncfx.search.one_level.study import Study
from nncfx.search.settings import SearchSettings
from nncfx.search.trials import Measurement
from nncfx.search.workers.driver import driving
from nncfx.search.workers.executor import Executor


def search_level(  # noqa: PLR0913 (entry point: one argument per setting)
    evaluate: Callable[[float], Measurement],
    *,
    threshold: float,
    maximize: bool,
    at_zero: Measurement,
    study: Study | None = None,
    settings: SearchSettings | None = None,
    executor: Executor | None = None,
) -> SearchResult:
    """Search for the level with the best objective whose metric is at least `threshold`.

    Stage 1 finds s_acc, the highest level that is feasible (see `find_level`); stage 2 looks for
    the best objective within (0, s_acc] (see `optimize_objective`), starting from the objectives
    that stage 1 measured. No level is measured twice. The dense model is trial 0 and feasible, so
    there is always a result.

    Args:
        evaluate: compresses to a level in (0, 1) and measures the result. If it raises, the trial
            has failed and counts as infeasible. A measurement with a standard error is feasible if
            it is `settings.caution` standard errors above the threshold.
        threshold: the smallest acceptable metric.
        maximize: whether a larger objective is better.
        at_zero: the dense model's measurement; if `study` already has one, that one is used.
        study: the journal; without one the search cannot be resumed.
        settings: the resolution and the budget of the search.
        executor: evaluates several levels at the same time, such as `LocalExecutor(2)`; None: one
            after the other, here.

    Raises:
        SearchError: the dense model is below the threshold, the first four trials failed, or the
            journal belongs to another search.
        MachineError: memory, disk or a device failed; run again to continue from the journal.
        ArgumentError: `at_zero` or `threshold` is not finite.
        MissingExtraError: BoTorch is not installed.

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
    if not at_zero.is_finite:
        raise ArgumentError(
            f"at_zero has metric {at_zero.metric} and objective {at_zero.objective}; both must be "
            "finite numbers. Measure the dense model first."
        )
    check_threshold(threshold)
    settings = settings or SearchSettings()
    study = study or Study()
    study.bind({"threshold": threshold, "maximize": maximize, **settings.to_json()})
    if not study.trials:
        study.run("dense", 0.0, lambda _: at_zero)
    with driving(executor, evaluate):
        level_accuracy = run_accuracy_stage(study, evaluate, threshold, settings, executor).low
        run_objective_stage(
            study, evaluate, level_accuracy, settings, maximize=maximize, executor=executor
        )
    return SearchResult(
        trials=tuple(study.trials),
        threshold=threshold,
        maximize=maximize,
        level_accuracy=level_accuracy,
        caution=settings.caution,
        chosen=best_trial(
            [t for t in study.trials if t.is_feasible(threshold, settings.caution)],
            maximize=maximize,
        ),
    )

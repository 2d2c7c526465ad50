"""Both stages together."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from nncfx.errors import ArgumentError, SearchError
from nncfx.search import Measurement, SearchResult, SearchSettings, Study, search_level

DENSE = Measurement(metric=0.93, objective=1.0)


def accuracy(level: float) -> float:
    return 0.93 - 0.02 * (level / 0.6) ** 5


def searched(
    objective: Callable[[float], float],
    metric: Callable[[float], float] = accuracy,
    error: float | None = None,
    **changes: Any,  # noqa: ANN401 (arguments of search_level)
) -> SearchResult:
    def evaluate(level: float) -> Measurement:
        found = metric(level), objective(level)
        return Measurement(metric=found[0], objective=found[1], standard_error=error)

    given = {"threshold": 0.91, "maximize": True, "at_zero": DENSE}
    return search_level(evaluate, **given | changes)


def size(level: float) -> float:
    return 1 / (1 - level)


def test_an_objective_that_grows_with_the_level_chooses_s_acc() -> None:
    result = searched(size)
    assert result.level == result.level_accuracy == result.chosen.level
    assert 0 <= 0.6 - result.level <= 0.01


def test_an_inner_optimum_is_found_and_nothing_is_measured_twice() -> None:
    dense = Measurement(metric=0.93, objective=0.35**2)
    result = searched(lambda level: (level - 0.35) ** 2, maximize=False, at_zero=dense)
    assert result.level == pytest.approx(0.35, abs=0.03)
    levels = [trial.level for trial in result.trials]
    assert len(set(levels)) == len(levels)
    for stage in ("accuracy", "objective"):
        assert sum(trial.stage == stage for trial in result.trials) <= 10


def test_the_dense_model_is_trial_0_and_chosen_when_nothing_beats_it() -> None:
    result = searched(float, lambda _: 0.5)
    assert (result.level, result.level_accuracy) == (0.0, 0.0)
    assert result.chosen is result.trials[0]
    assert result.chosen.stage == "dense"


def test_an_infeasible_trial_is_never_chosen() -> None:
    dense = Measurement(metric=0.93, objective=0.0)
    result = searched(lambda level: -level, maximize=False, at_zero=dense)
    assert min(t.measurement.objective for t in result.trials if t.measurement) < -0.61
    assert result.chosen.is_feasible(0.91)


def test_a_trial_that_diverges_is_recorded_and_the_search_goes_on() -> None:
    result = searched(float, lambda level: float("nan") if level > 0.4 else 0.93)
    assert "failed" in {trial.state for trial in result.trials}
    assert 0.39 <= result.level_accuracy <= 0.4


def test_equal_seeds_give_equal_journals_but_for_times(tmp_path: pathlib.Path) -> None:
    journals = []
    for name in ("one", "two"):
        with Study(tmp_path / name, {"model": "abc"}) as study:
            searched(lambda level: level * (0.9 - level), study=study)
        lines = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        journals.append(
            [{k: v for k, v in ln.items() if k not in {"seconds", "started"}} for ln in lines]
        )
    assert journals[0] == journals[1]
    assert len(journals[0]) > 5


def test_resuming_with_another_threshold_is_refused(tmp_path: pathlib.Path) -> None:
    def search(threshold: float) -> float:
        with Study(tmp_path / "journal.jsonl") as study:
            settings = SearchSettings(max_evaluations=2)
            return searched(float, threshold=threshold, study=study, settings=settings).level

    search(0.91)
    with pytest.raises(
        SearchError, match=r"'threshold' = 0.91 in its search, and this search has 0.9:"
    ):
        search(0.9)


def test_a_dense_model_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ArgumentError, match="at_zero has metric nan"):
        searched(float, at_zero=Measurement(metric=float("nan"), objective=1))


def test_a_choice_that_is_refused_gives_way_to_the_best_below_it() -> None:
    result = searched(size)
    levels = sorted(trial.level for trial in result.trials if trial.is_feasible(0.91))
    found, seen = result, []
    while found.level > 0:
        seen.append(found.level)
        found = found.safer()
    assert seen == sorted((level for level in levels if level > 0), reverse=True)
    with pytest.raises(SearchError, match="The dense model is chosen"):
        found.safer()


def test_the_level_is_safe_by_the_standard_errors_of_its_metric() -> None:
    error = 0.005
    result = searched(size, error=error)
    crossing = 0.6 * ((0.02 - 2 * error) / 0.02) ** (1 / 5)
    assert 0 <= crossing - result.level <= 0.01


def test_a_journal_without_standard_errors_goes_on(tmp_path: pathlib.Path) -> None:
    """The header of an earlier version knows of no caution, and its trials were taken as exact."""

    def run() -> float:
        with Study(tmp_path / "journal.jsonl") as study:
            return searched(float, study=study).level

    level = run()
    header = json.loads((tmp_path / "journal.jsonl").read_text().splitlines()[0])["header"]
    assert "caution" not in header
    assert run() == level

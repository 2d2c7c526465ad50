"""Both stages together."""

import json
import pathlib

import pytest

from nncfx.errors import ArgumentError, SearchError
from nncfx.search import Measurement, SearchSettings, Study, search_level

DENSE = Measurement(metric=0.93, objective=1.0)


def accuracy(level: float) -> float:
    return 0.93 - 0.02 * (level / 0.6) ** 5


def test_an_objective_that_grows_with_the_level_chooses_s_acc() -> None:
    result = search_level(
        lambda level: Measurement(metric=accuracy(level), objective=1 / (1 - level)),
        threshold=0.91,
        maximize=True,
        at_zero=DENSE,
    )
    assert result.level == result.level_accuracy == result.chosen.level
    assert 0 <= 0.6 - result.level <= 0.01


def test_an_inner_optimum_is_found_and_nothing_is_measured_twice() -> None:
    result = search_level(
        lambda level: Measurement(metric=accuracy(level), objective=(level - 0.35) ** 2),
        threshold=0.91,
        maximize=False,
        at_zero=Measurement(metric=0.93, objective=0.35**2),
    )
    assert result.level == pytest.approx(0.35, abs=0.03)
    levels = [trial.level for trial in result.trials]
    assert len(set(levels)) == len(levels)
    for stage in ("accuracy", "objective"):
        assert sum(trial.stage == stage for trial in result.trials) <= 10


def test_the_dense_model_is_trial_0_and_chosen_when_nothing_beats_it() -> None:
    result = search_level(
        lambda level: Measurement(metric=0.5, objective=level),
        threshold=0.91,
        maximize=True,
        at_zero=DENSE,
    )
    assert (result.level, result.level_accuracy) == (0.0, 0.0)
    assert result.chosen is result.trials[0]
    assert result.chosen.stage == "dense"


def test_an_infeasible_trial_is_never_chosen() -> None:
    result = search_level(
        lambda level: Measurement(metric=accuracy(level), objective=-level),
        threshold=0.91,
        maximize=False,
        at_zero=Measurement(metric=0.93, objective=0.0),
    )
    assert min(t.measurement.objective for t in result.trials if t.measurement) < -0.61
    assert result.chosen.is_feasible(0.91)


def test_a_trial_that_diverges_is_recorded_and_the_search_goes_on() -> None:
    def evaluate(level: float) -> Measurement:
        metric = float("nan") if level > 0.4 else 0.93
        return Measurement(metric=metric, objective=level)

    result = search_level(evaluate, threshold=0.91, maximize=True, at_zero=DENSE)
    assert "failed" in {trial.state for trial in result.trials}
    assert 0.39 <= result.level_accuracy <= 0.4


def test_equal_seeds_give_equal_journals_but_for_times(tmp_path: pathlib.Path) -> None:
    journals = []
    for name in ("one", "two"):
        with Study(tmp_path / name, {"model": "abc"}) as study:
            search_level(
                lambda level: Measurement(metric=accuracy(level), objective=level * (0.9 - level)),
                threshold=0.91,
                maximize=True,
                at_zero=DENSE,
                study=study,
            )
        lines = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        journals.append(
            [{k: v for k, v in ln.items() if k not in {"seconds", "started"}} for ln in lines]
        )
    assert journals[0] == journals[1]
    assert len(journals[0]) > 5


def test_resuming_with_another_threshold_is_refused(tmp_path: pathlib.Path) -> None:
    def search(threshold: float) -> float:
        with Study(tmp_path / "journal.jsonl") as study:
            return search_level(
                lambda level: Measurement(metric=accuracy(level), objective=level),
                threshold=threshold,
                maximize=True,
                at_zero=DENSE,
                study=study,
                settings=SearchSettings(max_evaluations=2),
            ).level

    search(0.91)
    with pytest.raises(
        SearchError, match=r"'threshold' = 0.91 in its search, and this search has 0.9:"
    ):
        search(0.9)


def test_a_dense_model_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ArgumentError, match="at_zero has metric nan"):
        search_level(
            lambda _: DENSE,
            threshold=0.9,
            maximize=True,
            at_zero=Measurement(metric=float("nan"), objective=1),
        )


def test_a_choice_that_is_refused_gives_way_to_the_best_below_it() -> None:
    result = search_level(
        lambda level: Measurement(metric=accuracy(level), objective=1 / (1 - level)),
        threshold=0.91,
        maximize=True,
        at_zero=DENSE,
    )
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
    result = search_level(
        lambda level: Measurement(
            metric=accuracy(level), objective=1 / (1 - level), standard_error=error
        ),
        threshold=0.91,
        maximize=True,
        at_zero=DENSE,
    )
    crossing = 0.6 * ((0.02 - 2 * error) / 0.02) ** (1 / 5)
    assert 0 <= crossing - result.level <= 0.01


def test_a_journal_without_standard_errors_goes_on(tmp_path: pathlib.Path) -> None:
    """The header of an earlier version knows of no caution, and its trials were taken as exact."""

    def run() -> float:
        with Study(tmp_path / "journal.jsonl") as study:
            return search_level(
                lambda level: Measurement(metric=accuracy(level), objective=level),
                threshold=0.91,
                maximize=True,
                at_zero=DENSE,
                study=study,
            ).level

    level = run()
    header = json.loads((tmp_path / "journal.jsonl").read_text().splitlines()[0])["header"]
    assert "caution" not in header
    assert run() == level

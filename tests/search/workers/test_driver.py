"""Searches whose trials run side by side: nothing lost or counted twice, as good a choice."""

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nncfx.errors import ArgumentError, MachineError, SearchError
from nncfx.search import (
    Candidate,
    CandidateStudy,
    Executor,
    Measurement,
    Problem,
    Range,
    SearchSettings,
    Space,
    SpaceResult,
    SpaceSettings,
    Study,
    find_level,
    search_level,
    search_space,
)

Held: TypeAlias = "Callable[..., Any]"
PROBLEM = Problem(
    space=Space([Range("a", 0.0, 1.0), Range("b", 0.0, 1.0)]), objectives={"y": "minimize"}
)


def bowl(candidate: Mapping[str, Any]) -> dict[str, float]:
    return {"y": (candidate["a"] - 0.3) ** 2 + (candidate["b"] - 0.6) ** 2}


def curve(level: float) -> Measurement:
    return Measurement(metric=0.93 - 0.02 * (level / 0.7) ** 4, objective=1 / (1.05 - level))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_level_is_found_as_closely_as_alone(held: Held, workers: int) -> None:
    executor = held(workers)
    found = find_level(
        lambda level: curve(level).metric,
        0.91,
        at_zero=0.93,
        max_evaluations=16,
        executor=executor,
    )
    assert 0.69 < found.level <= 0.7
    assert executor.most == workers
    assert not executor.is_open


def test_one_worker_asks_for_the_levels_that_a_search_alone_asks_for(held: Held) -> None:
    def found(executor: Executor | None) -> list[float]:
        found = search_level(
            curve, threshold=0.91, maximize=True, at_zero=curve(0.0), executor=executor
        )
        return [trial.level for trial in found.trials]

    assert found(held(1)) == found(None)


def test_no_trial_is_lost_or_counted_twice_whoever_dies(
    held: Held, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "study.jsonl"
    settings = SpaceSettings(max_evaluations=9, initial=6)
    with CandidateStudy(path) as study, caplog.at_level(logging.WARNING):
        executor = held(3, lose=2)
        result = search_space(bowl, PROBLEM, settings=settings, study=study, executor=executor)
    assert caplog.text.count("is given again") == 2
    leases = Counter(json.dumps(one["lease"]) for one in lines(path) if "lease" in one)
    trials = Counter(json.dumps(one["candidate"]) for one in lines(path) if "lease" not in one)
    assert leases == trials
    assert set(trials.values()) == {1}
    assert len(result.trials) == 9
    assert [trial.number for trial in result.trials] == list(range(9))
    assert result.trials[0].after == 0  # given before anything had ended


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_search_whose_driver_died_gives_its_leases_again(
    held: Held, tmp_path: Path, workers: int
) -> None:
    path = tmp_path / "study.jsonl"
    settings = SpaceSettings(max_evaluations=6, initial=6)

    def search(evaluate: Callable[[Candidate], dict[str, float]], workers: int) -> SpaceResult:
        with CandidateStudy(path) as study:
            return search_space(
                evaluate, PROBLEM, settings=settings, study=study, executor=held(workers)
            )

    def interrupted(_: Mapping[str, Any]) -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(interrupted, 3)
    stale = [one["lease"] for one in lines(path)]
    assert len(stale) == 3
    trials = search(bowl, workers).trials
    given_first = [dict(trial.candidate) for trial in trials if trial.after == 0]
    assert sorted(map(str, given_first)) == sorted(map(str, stale))
    assert sum("lease" in one for one in lines(path)) == len(trials) == 6
    with CandidateStudy(path) as study:
        assert not study.leases


def test_leases_know_no_clock(held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = iter([3e9, -3e9] * 100)
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + next(jumps))
    with Study(tmp_path / "study.jsonl") as study:
        found = search_level(
            curve,
            threshold=0.91,
            maximize=True,
            at_zero=curve(0.0),
            study=study,
            settings=SearchSettings(max_evaluations=6),
            executor=held(2),
        )
        assert not study.leases
    assert all(0 <= trial.seconds < 60 for trial in found.trials)


def test_a_second_driver_is_refused(held: Held, tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    with CandidateStudy(path), pytest.raises(SearchError, match="in use by another search"):
        search_space(bowl, PROBLEM, study=CandidateStudy(path), executor=held(2))


def test_a_trial_that_kills_every_worker_ends_the_search_unrecorded(
    held: Held, tmp_path: Path
) -> None:
    path = tmp_path / "study.jsonl"
    with CandidateStudy(path) as study, pytest.raises(MachineError, match="died 3 times"):
        search_space(bowl, PROBLEM, study=study, executor=held(1, lose=3))
    assert [*lines(path)[0]] == ["lease", "after", "started"]
    assert len(lines(path)) == 1


def test_failures_are_recorded_and_what_is_no_measurement_is_refused(held: Held) -> None:
    def fails(_: float) -> float:
        raise ValueError("diverged")

    with pytest.raises(SearchError, match="ValueError: diverged"):
        find_level(fails, 0.9, at_zero=0.93, executor=held(2))
    with pytest.raises(ArgumentError, match="needs a number for each of y"):
        search_space(lambda _: {"x": 1.0}, PROBLEM, executor=held(2))

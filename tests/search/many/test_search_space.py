"""The search over several dimensions finds known optima and fronts, and survives kills."""

import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from nncfx.errors import ArgumentError, SearchError
from nncfx.search import (
    Candidate,
    CandidateStudy,
    Choice,
    Problem,
    Range,
    Space,
    SpaceSettings,
    nearest_trial,
    search_space,
)
from nncfx.search.many.problem import non_dominated

LOSS = {2: 0.05, 4: 0.008, 8: 0.001}
NETWORK = Problem(
    space=Space(
        [Range("convolutions", 0, 0.95), Range("head", 0, 0.95), Choice("bits", (2, 4, 8))]
    ),
    objectives={"size": "minimize"},
    at_least={"accuracy": 0.9},
)
TOY = Problem(
    space=Space([Choice("a", (0, 1, 2, 3)), Choice("b", (0, 1, 2))]),
    objectives={"value": "maximize"},
)


def network(candidate: Candidate) -> dict[str, float]:
    """Two groups of layers, of which the head is harder to prune, and bits."""
    a, b = float(candidate["convolutions"]), float(candidate["head"])
    bits = int(candidate["bits"])
    return {
        "accuracy": 0.93 - 0.05 * a**4 - 0.2 * b**4 - LOSS[bits],
        "size": ((1 - a) + 2 * (1 - b)) * bits,
    }


def toy(candidate: Candidate) -> dict[str, float]:
    return {"value": 10 - (float(candidate["a"]) - 2) ** 2 - (float(candidate["b"]) - 1) ** 2}


@pytest.mark.slow
def test_the_known_optimum_within_a_limit_is_found_by_every_seed() -> None:
    levels = [0.95 * i / 100 for i in range(101)]
    every = (
        network({"convolutions": a, "head": b, "bits": bits})
        for a, b in itertools.product(levels, levels)
        for bits in LOSS
    )
    optimum = min(found["size"] for found in every if NETWORK.is_feasible(found))
    for seed in range(2):
        settings = SpaceSettings(max_evaluations=22, seed=seed)
        best = search_space(network, NETWORK, settings=settings).best
        assert best.outcomes["accuracy"] >= 0.9
        assert best.outcomes["size"] < 1.03 * optimum
        assert best.candidate["bits"] == 4


@pytest.mark.slow
def test_the_front_lies_on_the_known_one() -> None:
    """The front of two squared distances is the line between their centres."""

    def distances(candidate: Candidate) -> dict[str, float]:
        x, y = float(candidate["x"]), float(candidate["y"])
        return {"near": x**2 + y**2, "far": (x - 1) ** 2 + y**2}

    problem = Problem(
        space=Space([Range("x", -1, 2), Range("y", -1, 1)]),
        objectives={"near": "minimize", "far": "minimize"},
    )
    result = search_space(distances, problem, settings=SpaceSettings(max_evaluations=16))
    # on the front the two distances add up to 1
    sums = [sum(math.sqrt(v) for v in t.outcomes.values()) for t in result.front if t.outcomes]
    assert sum(total < 1.03 for total in sums) >= 6
    assert {t.number for t in result.front} <= {t.number for t in result.feasible}


def test_a_small_space_is_searched_without_repeating_a_candidate() -> None:
    result = search_space(toy, TOY, settings=SpaceSettings(max_evaluations=50))
    candidates = [tuple(trial.candidate.values()) for trial in result.trials]
    assert len(candidates) == len(set(candidates)) == 12
    assert dict(result.best.candidate) == {"a": 2, "b": 1}


def test_the_start_is_evaluated_first() -> None:
    start = [{"a": 3, "b": 2}, {"a": 0, "b": 0}]
    settings = SpaceSettings(max_evaluations=3, initial=2)
    result = search_space(toy, TOY, start=start, settings=settings)
    assert [dict(trial.candidate) for trial in result.trials[:2]] == start


def test_failed_trials_are_recorded_and_the_search_goes_on() -> None:
    def fragile(candidate: Candidate) -> dict[str, float]:
        if candidate["a"] == 3:
            raise ZeroDivisionError("no channel left")
        return {"value": math.nan} if candidate["a"] == 0 else toy(candidate)

    result = search_space(fragile, TOY, settings=SpaceSettings(max_evaluations=50))
    assert len(result.trials) == 12
    errors = {trial.error for trial in result.trials if trial.outcomes is None}
    assert "ZeroDivisionError: no channel left" in errors
    assert dict(result.best.candidate) == {"a": 2, "b": 1}


def test_a_search_in_which_nothing_works_ends_with_the_reason() -> None:
    def broken(candidate: Candidate) -> dict[str, float]:
        raise RuntimeError(f"nothing works, not even {candidate}")

    with pytest.raises(SearchError, match=r"first 4 trials all failed.*nothing works"):
        search_space(broken, TOY)


def test_limits_that_nothing_keeps_are_said_when_the_best_is_asked_for() -> None:
    problem = Problem(space=TOY.space, objectives=TOY.objectives, at_least={"value": 100})
    result = search_space(toy, problem, settings=SpaceSettings(max_evaluations=7))
    assert result.front == ()
    with pytest.raises(SearchError, match="None of 7 trials keeps the limits"):
        _ = result.best


def run(path: Path, stop: int | None = None) -> list[dict[str, object]]:
    """Search with a journal at `path`, killed at trial `stop`; return the journal's trials."""
    calls = itertools.count()

    def evaluate(candidate: Candidate) -> Mapping[str, float]:
        if next(calls) == stop:
            raise KeyboardInterrupt
        return network(candidate)

    with CandidateStudy(path, {"model": "abc"}) as study:
        settings = SpaceSettings(max_evaluations=11)
        if stop is None:
            search_space(evaluate, NETWORK, settings=settings, study=study)
        else:
            with pytest.raises(KeyboardInterrupt):
                search_space(evaluate, NETWORK, settings=settings, study=study)
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return [{k: v for k, v in one.items() if k not in ("seconds", "started")} for one in lines]


def test_killed_and_resumed_gives_the_journal_of_an_uninterrupted_search(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole.jsonl")
    killed = tmp_path / "killed.jsonl"
    assert len(run(killed, stop=9)) == 9
    assert run(killed) == whole
    assert len(whole) == 11


def test_a_journal_of_another_search_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    settings = SpaceSettings(max_evaluations=1)
    with CandidateStudy(path) as study:
        search_space(toy, TOY, settings=settings, study=study)
    other = Problem(space=TOY.space, objectives={"value": "minimize"})
    with CandidateStudy(path) as study, pytest.raises(SearchError, match="objectives"):
        search_space(toy, other, settings=settings, study=study)


def test_a_missing_outcome_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ArgumentError, match="needs a number for each of value"):
        search_space(lambda candidate: {"other": float(candidate["a"])}, TOY)


def test_the_nearest_finished_trial_warms_a_start() -> None:
    study = CandidateStudy()
    assert nearest_trial(study.trials, {"a": 0, "b": 0}, TOY.space) is None
    for candidate in ({"a": 0, "b": 0}, {"a": 3, "b": 2}, {"a": 3, "b": 0}):
        study.run(candidate, ["value"], toy)
    found = nearest_trial(study.trials, {"a": 2, "b": 2}, TOY.space)
    assert found.number == 1


def test_of_equal_points_none_dominates() -> None:
    assert non_dominated([(1.0, 1.0), (1.0, 1.0), (0.0, 2.0), (0.0, 1.0)]) == [
        True,
        True,
        True,
        False,
    ]


def test_problems_without_a_direction_or_a_finite_limit_are_refused() -> None:
    with pytest.raises(ArgumentError, match="'maximize' or 'minimize'"):
        Problem(space=TOY.space, objectives={})
    with pytest.raises(ArgumentError, match="limit of 'value' is nan"):
        Problem(space=TOY.space, objectives=TOY.objectives, at_most={"value": math.nan})

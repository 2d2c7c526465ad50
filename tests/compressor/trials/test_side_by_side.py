"""A compressor whose trials run on workers chooses as well, and measures time alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from nncfx import Compressor
from nncfx.compressor.trials.side_by_side import NoTimer, TimedElsewhere
from nncfx.errors import ArgumentError
from nncfx.lc import LC
from nncfx.objectives import Maximize, throughput
from nncfx.schemes import AtLevel, Compose, Prune
from nncfx.search import LocalExecutor, Range, Space, SpaceSettings

Make = Callable[..., Compressor]


def layered(candidate: Any) -> Compose:  # noqa: ANN401 (a candidate)
    return Compose([AtLevel(Prune(), candidate["first"])])


def outcomes(journal: Path) -> list[tuple[Any, ...]]:
    records = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    return sorted(
        (one["level"], one["metric"], one["objective"], one["details"]["macs"])
        for one in records
        if one.get("stage", "dense") != "dense"
    )


def test_on_a_worker_no_time_is_measured() -> None:
    with pytest.raises(TimedElsewhere):
        NoTimer().latency_ms(nn.Linear(1, 1))
    with pytest.raises(TimedElsewhere):
        NoTimer().throughput(nn.Linear(1, 1))
    assert not issubclass(TimedElsewhere, Exception)  # no objective catches it by chance


@pytest.mark.parametrize(
    "both",
    [{"workers": 0}, {"executor": LocalExecutor}, {"workers": 2, "executor": LocalExecutor(2)}],
)
def test_who_runs_trials_is_said_once_and_well(quick: Make, both: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=r"workers is|executor is"):
        quick(**both)


@pytest.mark.slow
def test_one_worker_finds_what_a_run_alone_does(quick: Make, tmp_path: Path) -> None:
    alone = quick(folder=tmp_path / "alone").run()
    beside = quick(folder=tmp_path / "beside", executor=LocalExecutor(1)).run()
    found = [outcomes(tmp_path / name / "journal.jsonl") for name in ("alone", "beside")]
    assert found[0] == found[1]
    assert alone.search.level == beside.search.level
    for a, b in zip(alone.model.parameters(), beside.model.parameters(), strict=True):
        assert a.equal(b)
    # a run alone goes on in the folder of one side by side, and has nothing left to do
    again = quick(folder=tmp_path / "beside").run()
    assert again.search.level == alone.search.level


@pytest.mark.slow
def test_two_workers_search_a_space_with_warm_starts_and_time_alone(quick: Make) -> None:
    result = quick(
        objective=Maximize(throughput),
        scheme=layered,
        space=Space([Range("first", 0.1, 0.6)]),
        settings=SpaceSettings(max_evaluations=4, initial=2),
        optimizer=LC(steps=2, mb_iterations_per_l=2),
        warm_start=True,
        workers=2,
    ).run()
    assert len(result.search.trials) == 4
    assert all(trial.state == "done" for trial in result.search.trials)
    assert all(trial.outcomes["objective"] > 0 for trial in result.search.trials)

"""A run goes on from what is there: with the same data only, and further if asked."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nncfx
from nncfx.compressor import CompressionResult
from nncfx.errors import SearchError
from nncfx.lc import DC, LC
from nncfx.objectives import Minimize, footprint
from nncfx.schemes import AtLevel, Prune
from nncfx.search import (
    CandidateStudy,
    Measurement,
    Problem,
    Range,
    SearchSettings,
    Space,
    SpaceSettings,
    Study,
    find_level,
    search_level,
    search_space,
)

Batches = list[tuple[torch.Tensor, torch.Tensor]]


class Counted:
    """A curve, and the levels that it was asked for."""

    def __init__(self) -> None:
        self.levels: list[float] = []

    def __call__(self, level: float) -> float:
        self.levels.append(level)
        return 0.93 - 0.16 * level**3

    def measured(self, level: float) -> Measurement:
        return Measurement(metric=self(level), objective=1 / (1.01 - level))


def test_a_finished_search_of_a_level_goes_on_with_more_evaluations(tmp_path: Path) -> None:
    curve = Counted()

    def found(most: int) -> float:
        with Study(tmp_path / "journal.jsonl", {}) as study:
            return find_level(curve, 0.91, at_zero=0.93, max_evaluations=most, study=study).level

    first = found(3)
    assert len(curve.levels) == 3
    second = found(8)
    assert 3 < len(set(curve.levels)) == len(curve.levels) <= 8
    assert second >= first
    assert found(8) == second
    assert len(curve.levels) == len(set(curve.levels))


def test_a_finished_search_of_both_stages_goes_on(tmp_path: Path) -> None:
    curve = Counted()

    def search(most: int) -> int:
        with Study(tmp_path / "journal.jsonl", {}) as study:
            result = search_level(
                curve.measured,
                threshold=0.91,
                maximize=True,
                at_zero=Measurement(metric=0.93, objective=1.0),
                study=study,
                settings=SearchSettings(max_evaluations=most),
            )
        return len(result.trials)

    fewer, more = search(2), search(6)
    assert fewer < more == 1 + len(curve.levels)


def test_a_finished_search_of_a_space_goes_on_to_the_trials_of_a_longer_one(
    tmp_path: Path,
) -> None:
    problem = Problem(space=Space([Range("x", 0.0, 1.0)]), objectives={"y": "minimize"})
    calls: list[float] = []

    def outcomes(candidate: Any) -> dict[str, float]:  # noqa: ANN401 (a candidate)
        calls.append(candidate["x"])
        return {"y": (candidate["x"] - 0.3) ** 2}

    def search(path: Path, most: int) -> list[Any]:
        with CandidateStudy(path, {}) as study:
            result = search_space(
                outcomes, problem, settings=SpaceSettings(max_evaluations=most), study=study
            )
        return [trial.candidate for trial in result.trials]

    search(tmp_path / "extended", 4)
    extended = search(tmp_path / "extended", 7)
    assert len(calls) == 7
    assert extended == search(tmp_path / "at once", 7)


def test_other_settings_are_refused_as_before(tmp_path: Path) -> None:
    with Study(tmp_path / "j", {}) as study:
        find_level(Counted(), 0.91, at_zero=0.93, max_evaluations=2, study=study)
    with Study(tmp_path / "j", {}) as study, pytest.raises(SearchError, match="'seed' = 0"):
        find_level(Counted(), 0.91, at_zero=0.93, max_evaluations=4, seed=1, study=study)


def test_a_journal_without_facts_of_the_data_is_read(tmp_path: Path) -> None:
    with Study(tmp_path / "j", {"a": 1}) as study:  # as those of earlier versions
        study.run("accuracy", 0.5, Counted().measured)
    with Study(tmp_path / "j", {"a": 1}, {"samples of valloader": 5}) as study:
        assert len(study.trials) == 1


@pytest.fixture(scope="module")
def batches() -> Batches:
    torch.manual_seed(0)
    x = torch.randn(64, 16)
    y = (x[:, 0] < 0).long()
    return list(zip(x.split(16), y.split(16), strict=True))


@pytest.fixture(scope="module")
def compressor(batches: Batches) -> Callable[..., nncfx.Compressor]:
    model = nn.Linear(16, 2)
    nn.init.normal_(model.weight, std=0.01)
    model.weight.data[:, 0] = torch.tensor([1.0, -1.0])

    def make(**changed: Any) -> nncfx.Compressor:  # noqa: ANN401 (settings)
        settings: dict[str, Any] = {
            "model": model,
            "objective": Minimize(footprint),
            "eps": 0.1,
            "scheme": Prune(),
            "optimizer": DC(),
            "trainloader": batches,
            "valloader": batches,
            "criterion": F.cross_entropy,
            "runtime": "torch",
            "settings": SearchSettings(max_evaluations=3),
        }
        return nncfx.Compressor(**(settings | changed))

    return make


@pytest.fixture(scope="module")
def ended(
    compressor: Callable[..., nncfx.Compressor], tmp_path_factory: pytest.TempPathFactory
) -> tuple[CompressionResult, Path]:
    """Return what a run found, and its folder."""
    folder = tmp_path_factory.mktemp("ended")
    return compressor(folder=folder).run(), folder


@pytest.fixture
def again(ended: tuple[CompressionResult, Path], tmp_path: Path) -> Path:
    """Return a copy of the folder of the run that `ended`."""
    return shutil.copytree(ended[1], tmp_path / "again")


@pytest.mark.parametrize("name", ["trainloader", "valloader"])
def test_a_compressor_refuses_to_go_on_with_other_data(
    again: Path, compressor: Callable[..., nncfx.Compressor], batches: Batches, name: str
) -> None:
    shorter = batches[:3]
    relabelled = [*batches[:3], (batches[3][0], 1 - batches[3][1])]
    with pytest.raises(SearchError, match=f"'samples of {name}' = 64.*has 48"):
        compressor(folder=again, **{name: shorter}).run()
    with pytest.raises(SearchError, match=f"'content of {name}' ="):
        compressor(folder=again, **{name: relabelled}).run()


def test_a_recovery_that_was_cut_off_does_not_go_on_with_other_data(
    tmp_path: Path, batches: Batches
) -> None:
    lc = LC(steps=3, lr=0.01, mb_iterations_per_l=2, resume_folder=tmp_path)

    class Cut(Exception):  # noqa: N818 (no error of the code)
        pass

    def recovered(train: Batches, stop_at: int) -> int:
        calls: list[nn.Module] = []

        def validate(model: nn.Module) -> float:
            calls.append(model)
            if len(calls) == stop_at:
                raise Cut
            return 0.0

        data = nncfx.lc.RecoveryData(train=train, validate=validate, criterion=F.cross_entropy)
        torch.manual_seed(0)
        lc.recover(nn.Linear(16, 2), Prune(), 0.5, data)
        return len(calls)

    with pytest.raises(Cut):
        recovered(batches, 3)
    assert recovered(batches[:2], 9) > recovered(batches, 9)


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    elif how == "torn":
        path.write_bytes(content[:-9])
    elif how == "flipped":
        content[-1] ^= 64
        path.write_bytes(content)
    else:
        path.write_bytes(b"")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["gone", "torn", "flipped", "empty"])
def test_one_damaged_file_of_weights_costs_that_trial_only(
    ended: tuple[CompressionResult, Path],
    again: Path,
    compressor: Callable[..., nncfx.Compressor],
    how: str,
) -> None:
    first, folder = ended
    assert first.search.level > 0
    file = again / "weights" / f"level-{first.search.level!r}.safetensors"
    before = file.read_bytes()
    damage(file, how)
    found = compressor(folder=again).run()
    assert (again / "journal.jsonl").read_bytes() == (folder / "journal.jsonl").read_bytes()
    assert found.search.level == first.search.level
    for one, other in zip(first.model.parameters(), found.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert file.read_bytes() == before


@pytest.mark.slow
def test_lost_weights_of_a_warm_start_are_made_again(
    tmp_path: Path, compressor: Callable[..., nncfx.Compressor]
) -> None:
    scheme = {
        "space": Space([Range("level", 0.0, 0.9)]),
        "scheme": lambda candidate: AtLevel(Prune(), candidate["level"]),
        "warm_start": True,
    }
    whole = compressor(
        folder=tmp_path / "whole", settings=SpaceSettings(max_evaluations=6), **scheme
    ).run()
    cut = tmp_path / "cut"
    compressor(folder=cut, settings=SpaceSettings(max_evaluations=4), **scheme).run()
    for file in (cut / "weights").iterdir():
        file.unlink()
    again = compressor(folder=cut, settings=SpaceSettings(max_evaluations=6), **scheme).run()

    def outcomes(folder: Path) -> list[Any]:
        lines = (folder / "journal.jsonl").read_text().splitlines()[1:]
        return [json.loads(line)["outcomes"] for line in lines]

    assert outcomes(cut) == outcomes(tmp_path / "whole")
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)

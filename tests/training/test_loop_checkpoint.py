"""The file of an unfinished training."""

import errno
import io
import os
import tracemalloc
from dataclasses import make_dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from nncfx.errors import StorageError
from nncfx.training.loop_checkpoint import TrainingFile, settings_text


class Ran:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


def test_parts_and_generators_come_back_to_the_bit(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    file = TrainingFile(tmp_path / "deep" / "t.ckpt", "a")
    torch.manual_seed(4)
    file.save(7, {"model": model})
    wanted, weight = torch.rand(3), model.weight.detach().clone()
    torch.nn.init.zeros_(model.weight)
    assert file.restore({"model": model}) == 7
    assert torch.equal(torch.rand(3), wanted)
    assert torch.equal(model.weight, weight)


def test_without_a_path_or_a_file_training_begins_at_the_beginning(tmp_path: Path) -> None:
    TrainingFile(None, "a").save(1, {})
    assert TrainingFile(None, "a").restore({}) == 0
    assert TrainingFile(tmp_path / "none", "a").restore({}) == 0


def test_the_file_of_another_training_is_refused(tmp_path: Path) -> None:
    TrainingFile(tmp_path / "t", "a").save(1, {})
    with pytest.raises(StorageError, match="another training"):
        TrainingFile(tmp_path / "t", "b").restore({})


def test_a_setting_that_a_later_version_adds_is_no_other_training(tmp_path: Path) -> None:
    earlier = make_dataclass("Settings", [("level", float)])
    later = make_dataclass("Settings", [("level", float), ("lasso", float, 0.0)])
    TrainingFile(tmp_path / "t", settings_text([earlier(0.5)])).save(1, {})
    assert TrainingFile(tmp_path / "t", settings_text([later(0.5)])).restore({}) == 1
    with pytest.raises(StorageError, match=r"its default.*lasso = 0\.1"):
        TrainingFile(tmp_path / "t", settings_text([later(0.5, 0.1)])).restore({})


@pytest.mark.parametrize("other", [torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(3)])
def test_a_file_of_another_model_is_refused(tmp_path: Path, other: torch.nn.Module) -> None:
    TrainingFile(tmp_path / "t", "a").save(1, {"model": torch.nn.Linear(3, 3)})
    with pytest.raises(
        StorageError, match=r"The model in .* does not fit.* another model, or by another version"
    ):
        TrainingFile(tmp_path / "t", "a").restore({"model": other})
    with pytest.raises(StorageError, match=r"holds the states of model, not of .*optimizer"):
        TrainingFile(tmp_path / "t", "a").restore({"optimizer": other})


@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.99])
def test_a_torn_file_is_refused(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "t"
    TrainingFile(path, "a").save(1, {"model": torch.nn.Linear(30, 30)})
    content = path.read_bytes()
    path.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    with pytest.raises(StorageError, match="Delete it"):
        TrainingFile(path, "a").restore({"model": torch.nn.Linear(30, 30)})


@pytest.mark.parametrize("content", [[], {"format": "other"}, {"format": "nncfx.training"}])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "t")
    with pytest.raises(StorageError, match="Delete it"):
        TrainingFile(tmp_path / "t", "a").restore({})


def test_a_file_of_which_any_bit_was_flipped_is_refused_or_whole(tmp_path: Path) -> None:
    path, model = tmp_path / "t.ckpt", torch.nn.Linear(3, 3)
    TrainingFile(path, "a").save(7, {"model": model})
    whole, weight = path.read_bytes(), model.weight.detach().clone()
    state, refused = torch.get_rng_state(), 0
    for place in range(0, len(whole), 97):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            TrainingFile(path, "a").restore({"model": model})
        except StorageError:
            refused += 1
        assert torch.equal(model.weight, weight)
        assert torch.equal(torch.get_rng_state(), state)
    assert refused > 0.8 * len(range(0, len(whole), 97))


@pytest.mark.parametrize("part", ["generator", "python", "numpy"])
def test_a_damaged_generator_is_named(tmp_path: Path, part: str) -> None:
    file = TrainingFile(tmp_path / "t", "a")
    file.save(1, {})
    content = torch.load(tmp_path / "t", weights_only=True)
    content[part] = ("MT19937", [1, 2])
    torch.save(content, tmp_path / "t")
    with pytest.raises(StorageError, match="random generators"):
        file.restore({})


def test_a_hostile_file_executes_nothing(tmp_path: Path) -> None:
    torch.save({"format": Ran(tmp_path / "ran")}, tmp_path / "t")
    with pytest.raises(StorageError, match="Delete it"):
        TrainingFile(tmp_path / "t", "a").restore({})
    assert not (tmp_path / "ran").exists()


def test_a_state_is_written_without_a_copy_of_it(tmp_path: Path) -> None:
    layer = nn.Linear(1000, 1000)
    tracemalloc.start()
    try:
        TrainingFile(tmp_path / "t", "x").save(1, {"model": layer})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < layer.weight.nbytes / 2
    assert TrainingFile(tmp_path / "t", "x").restore({"model": nn.Linear(1000, 1000)}) == 1


def test_a_full_disk_is_a_storage_error_and_leaves_the_old_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.FileIO):
        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file, layer = TrainingFile(tmp_path / "t", "x"), nn.Linear(100, 100)
    file.save(1, {"model": layer})

    def opened(path: Path, mode: str) -> Full:
        return Full(path, mode)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(StorageError, match=r"cannot be written .*No space left on device"):
        file.save(2, {"model": layer})
    monkeypatch.undo()
    assert file.restore({"model": layer}) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["t"]

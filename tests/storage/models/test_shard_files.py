"""Checkpoints in folders: each process writes its part, and what is not whole is refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import nncfx
from nncfx.errors import ArgumentError, StorageError
from nncfx.storage.models.shard_files import in_first_process

X = torch.linspace(-1, 1, 16).view(2, 8)
SPARSITY = {"compression": {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}}


class Net(nn.Module):
    """Two layers, and two that share a weight; `count` is no matrix."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 3)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.first.weight
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("none", torch.empty(0, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.tied(self.first(x).relu()))


def saved(folder: Path, model: nn.Module | None = None) -> tuple[Any, nn.Module]:
    controller, model = nncfx.create_compressed_model(model or Net(), SPARSITY, X)
    nncfx.save(folder, model, controller, shards=True)
    return controller, model


@pytest.mark.usefixtures("group")
def test_a_sharded_model_comes_back_sharded_or_not(tmp_path: Path) -> None:
    model = Net()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    controller, model = saved(tmp_path / "run", model)
    for fresh in (Net(), fully_shard(Net(), mesh=init_device_mesh("cpu", (1,)))):
        again, other = nncfx.load(tmp_path / "run", fresh)
        assert again.state_dict() == controller.state_dict()
        assert torch.equal(other(X), model(X))
        assert other.first.weight is other.tied.weight


def test_one_process_needs_no_group(tmp_path: Path) -> None:
    controller, model = saved(tmp_path / "deep" / "run")
    again, other = nncfx.load(tmp_path / "deep" / "run", Net)
    assert again.level == controller.level == 0.5
    for name, one in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], one), name


def test_a_finished_model_with_quantizers_is_as_good(tmp_path: Path) -> None:
    model = nncfx.quantize(Net(), [X])
    nncfx.save(tmp_path / "run", model, shards=True)
    assert torch.equal(nncfx.load(tmp_path / "run", Net)[1](X), model(X))


def test_the_next_checkpoint_takes_the_place_of_the_last(tmp_path: Path) -> None:
    controller, model = saved(tmp_path)
    (tmp_path / "shards-7").mkdir()  # of a process that was killed
    controller.level = 0.25
    nncfx.save(tmp_path, model, controller, shards=True)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["nncfx.json", "shards-8"]
    assert nncfx.load(tmp_path, Net)[0].level == 0.25


def test_a_failed_write_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, model = saved(tmp_path)
    before = sorted(tmp_path.rglob("*"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    controller.level = 0.25
    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save", full)
        with pytest.raises(StorageError, match=r"process 0: .*No space left on device"):
            nncfx.save(tmp_path, model, controller, shards=True)
    assert sorted(tmp_path.rglob("*")) == before
    assert nncfx.load(tmp_path, Net)[0].level == 0.5


@pytest.mark.parametrize(
    "failing", ["safetensors.torch.save", "nncfx.storage.models.shard_files.write_text"]
)
def test_a_failed_write_leaves_no_new_folder(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StorageError("No space left on device")

    monkeypatch.setattr(failing, full)
    (tmp_path / "mine").mkdir()
    for folder in ("mine", "new"):
        with pytest.raises(StorageError, match="No space left on device"):
            saved(tmp_path / folder)
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_integers_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="A folder of shards holds floats"):
        nncfx.save(tmp_path, Net(), integers=True, shards=True)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Name a folder that you may write to"):
        nncfx.save(tmp_path / "file", Net(), shards=True)
    with pytest.raises(StorageError, match="cannot be read"):
        nncfx.load(tmp_path, Net)


def rewritten(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    file = next(folder.glob("shards-*/*.safetensors"))
    with safe_open(file, framework="pt") as found:
        tensors = {name: found.get_tensor(name) for name in found.keys()}  # noqa: SIM118
        metadata = found.metadata()
    change(tensors)
    save_file(tensors, file, metadata=metadata)


@pytest.mark.parametrize("lost", ["last.weight", "_nncf.magnitude_sparsity.last|weight.mask"])
def test_a_tensor_that_files_hold_in_part_or_not_at_all_is_refused(
    lost: str, tmp_path: Path
) -> None:
    saved(tmp_path)
    rewritten(tmp_path, lambda tensors: tensors.update({lost: tensors[lost][:2].contiguous()}))
    with pytest.raises(StorageError, match=f"elements of '{re.escape(lost)}'"):
        nncfx.load(tmp_path, Net)
    rewritten(tmp_path, lambda tensors: tensors.pop(lost))
    with pytest.raises(StorageError, match=f"holds 0 of .* '{re.escape(lost)}'"):
        nncfx.load(tmp_path, Net)


@pytest.mark.parametrize(
    "change",
    [
        {"shards": "../shards-1"},
        {"shards": "shards-9"},
        {"shards": 3},
        {"format": "other"},
        {"version": 9},
        {"tensors": {"first.weight": ["F32", [8, -8]]}},
        {"tensors": {"first.weight": ["F33", [8, 8]]}},
        {"tensors": {"first.weight": ["F32", [1 << 60]]}},
        {"tensors": []},
        {"shared": {"tied.weight": ["first.weight"]}},
        {"shared": {"tied.weight": "nothing"}},
        {"structure": None},
    ],
    ids=str,
)
def test_descriptions_that_are_damaged_or_forged_are_refused(
    change: dict[str, Any], tmp_path: Path
) -> None:
    saved(tmp_path)
    path = tmp_path / "nncfx.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(StorageError):
        nncfx.load(tmp_path, Net)


def test_files_that_are_no_tensors_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    file = next(tmp_path.glob("shards-*/*.safetensors"))
    for content in (b"", b"no", file.read_bytes()[:200]):
        file.write_bytes(content)
        with pytest.raises(StorageError, match="is damaged"):
            nncfx.load(tmp_path, Net)
    (tmp_path / "nncfx.json").write_text("{")
    with pytest.raises(StorageError, match="is not JSON"):
        nncfx.load(tmp_path, Net)


@pytest.mark.usefixtures("group")
def test_a_folder_of_transformers_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(StorageError, match=r"that transformers reads, .*\.from_pretrained\("):
        nncfx.load(tmp_path, nn.Linear(2, 2))


def test_what_the_first_process_cannot_do_fails_in_it_as_it_is() -> None:
    def failing() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        in_first_process(failing)
    assert in_first_process(lambda: 3) == 3

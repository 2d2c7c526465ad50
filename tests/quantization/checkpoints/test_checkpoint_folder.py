"""Folders of shards from anywhere."""

import json
import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from nncfx.errors import StorageError
from nncfx.quantization.checkpoints.checkpoint_folder import Shards, ShardWriter


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "object of index"),
        ("{}", "has no 'weight_map'"),
        (json.dumps({"weight_map": {"w": "../../secret.safetensors"}}), "outside its folder"),
    ],
)
def test_damaged_and_hostile_indices_are_refused(index: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(StorageError, match=message):
        Shards(tmp_path)


def test_missing_tensors_and_damaged_files_are_told(tmp_path: Path) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    shards = Shards(tmp_path)
    assert shards.read("w").tolist() == [1, 1]
    with pytest.raises(StorageError, match="has no tensor 'v'"):
        shards.read("v")
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(StorageError, match="cannot be read"):
        shards.read("w")


def test_files_that_do_not_fit_the_model_of_the_config_are_told(tmp_path: Path) -> None:
    shards = source(tmp_path / "float")
    tied = torch.empty(2, device="meta")
    shards.check({"w": tied, "v": tied, "buffer": torch.ones(3)})
    with pytest.raises(StorageError, match=r"'w' is \[2\] in '.*', and \[3, 2\] by '.*config"):
        shards.check({"w": torch.empty(3, 2, device="meta")})
    with pytest.raises(StorageError, match=r"no tensor 'v'\. If transformers .*quantize_blocks"):
        shards.check({"w": torch.empty(2, device="meta"), "v": tied})


def source(folder: Path, value: float = 1.0) -> Shards:
    folder.mkdir()
    save_file({"w": torch.full((2,), value)}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    return Shards(folder)


def test_a_shard_is_there_and_told_once_it_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    writer = ShardWriter(tmp_path / "made", source(tmp_path / "float"), {"bits": 4})
    assert not writer.has("one")
    writer.write("one", {"w": torch.arange(3)})
    assert "model-one.safetensors' is written" in caplog.text
    assert writer.has("one")
    assert writer.read("one")["w"].tolist() == [0, 1, 2]
    assert [one.name for one in (tmp_path / "made").iterdir()] == ["model-one.safetensors"]


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "made").write_text("a file")
    with pytest.raises(StorageError, match=r"made' cannot be created \(.*exists"):
        ShardWriter(tmp_path / "made", source(tmp_path / "float"), {"bits": 4})


def test_shards_of_other_settings_or_of_another_model_are_not_gone_on_with(tmp_path: Path) -> None:
    old, new = source(tmp_path / "old"), source(tmp_path / "new", 2)
    ShardWriter(tmp_path / "made", old, {"bits": 4}).write("one", {"w": torch.arange(3)})
    assert ShardWriter(tmp_path / "made", old, {"bits": 4}).has("one")
    with pytest.raises(StorageError, match=r"other settings: bits was 4 and is 8 .*empty folder"):
        ShardWriter(tmp_path / "made", old, {"bits": 8})
    with pytest.raises(StorageError, match=r"other settings: source was \w{8} and is \w{8} "):
        ShardWriter(tmp_path / "made", new, {"bits": 4})
    (old.folder / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(StorageError, match="other settings: source was"):
        ShardWriter(tmp_path / "made", old, {"bits": 4})


@pytest.mark.parametrize("name", ["model.safetensors", "model-00001-of-00002.safetensors"])
@pytest.mark.parametrize("metadata", [{}, {"format": "pt"}, {"nncfx": "[]"}, {"nncfx": "{"}])
def test_a_folder_with_the_weights_of_another_model_is_refused(
    name: str, metadata: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "made").mkdir()
    save_file({"w": torch.ones(2)}, tmp_path / "made" / name, metadata=metadata)
    with pytest.raises(StorageError, match=f"{name}' belongs to another model.*empty folder"):
        ShardWriter(tmp_path / "made", source(tmp_path / "float"), {"bits": 4})


def test_the_folder_of_the_model_itself_is_refused(tmp_path: Path) -> None:
    shards = source(tmp_path / "float")
    with pytest.raises(StorageError, match="holds the model itself"):
        ShardWriter(tmp_path / "made" / ".." / "float", shards, {"bits": 4})
    assert len(list(shards.folder.iterdir())) == 2

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
        ("{", "cannot be read"),
        ("[]", "has no 'weight_map'"),
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


def test_a_shard_is_there_and_told_once_it_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    writer = ShardWriter(tmp_path / "made", {"bits": 4})
    assert not writer.has("one")
    writer.write("one", {"w": torch.arange(3)})
    assert "model-one.safetensors' is written" in caplog.text
    assert writer.has("one")
    assert writer.read("one")["w"].tolist() == [0, 1, 2]
    assert [one.name for one in (tmp_path / "made").iterdir()] == ["model-one.safetensors"]
    with pytest.raises(StorageError, match="was made by the settings"):
        ShardWriter(tmp_path / "made", {"bits": 8}).has("one")

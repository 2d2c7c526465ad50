"""safetensors to .nncfx and back: the same bits, with another library as the oracle."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import nncfx.storage
from nncfx.errors import StorageError
from nncfx.storage import pack_safetensors, unpack_safetensors
from nncfx.storage.models.torch_bits import DTYPES


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(20, 30, generator=generator)
    sparse = torch.where(values.abs() > 1.2, values, 0.0)
    known = {dtype for name, dtype in DTYPES.items() if name != "C64"}
    return {str(dtype): sparse.abs().to(dtype) for dtype in known} | {
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "negative.zero": torch.tensor([-0.0, 0.0]),
    }


def written(folder: Path, metadata: dict[str, str] | None = None) -> Path:
    save_file(tensors(), folder / "a.safetensors", metadata=metadata)
    return folder / "a.safetensors"


def test_every_format_comes_back_bitwise(tmp_path: Path) -> None:
    source = written(tmp_path)
    saved = pack_safetensors(source, tmp_path / "a.nncfx")
    unpack_safetensors(saved.path, tmp_path / "b.safetensors")
    again = load_file(tmp_path / "b.safetensors")
    assert again.keys() == tensors().keys()
    for name, value in tensors().items():
        assert again[name].dtype == value.dtype
        assert again[name].shape == value.shape
        assert (
            again[name].numpy(force=True).tobytes() == value.numpy(force=True).tobytes()
            if (value.dtype not in {torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2})
            else torch.equal(again[name].float(), value.float())
        )


def test_torch_reads_the_packed_file(tmp_path: Path) -> None:
    saved = pack_safetensors(written(tmp_path), tmp_path / "a.nncfx")
    state = nncfx.storage.load_state(saved.path, names=["torch.bfloat16", "scalar"])
    assert torch.equal(state["torch.bfloat16"], tensors()["torch.bfloat16"])
    assert state.keys() == {"torch.bfloat16", "scalar"}


def test_text_metadata_comes_back(tmp_path: Path) -> None:
    saved = pack_safetensors(written(tmp_path, {"format": "pt"}), tmp_path / "a.nncfx")
    unpack_safetensors(saved.path, tmp_path / "b.safetensors")
    with safe_open(tmp_path / "b.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_negative_zeros_may_go(tmp_path: Path) -> None:
    saved = pack_safetensors(written(tmp_path), tmp_path / "a.nncfx", signed_zeros=False)
    state = nncfx.storage.load_state(saved.path)
    assert not torch.signbit(state["negative.zero"]).any()
    assert torch.equal(state["torch.int8"], tensors()["torch.int8"])


def test_a_models_file_survives_the_way_through_safetensors(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    saved = nncfx.storage.save(tmp_path / "a.nncfx", model, metadata={"note": [1]})
    unpack_safetensors(saved.path, tmp_path / "a.safetensors")
    assert load_file(tmp_path / "a.safetensors").keys() == model.state_dict().keys()
    again = pack_safetensors(tmp_path / "a.safetensors", tmp_path / "b.nncfx")
    assert again.path.read_bytes() == saved.path.read_bytes()


def entry(**changes: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ([1], "not a JSON object"),
        ({"a": 5}, "the entry of tensor 'a'"),
        ({"a": entry(shape=[3])}, "the entry of tensor 'a'"),
        ({"a": entry(shape=[-2])}, "the entry of tensor 'a'"),
        ({"a": entry(shape="2")}, "the entry of tensor 'a'"),
        ({"a": entry(data_offsets=[0])}, "the entry of tensor 'a'"),
        ({"a": entry(data_offsets=[8, 16])}, "overlap or leave gaps"),
        ({"a": entry(), "b": entry()}, "overlap or leave gaps"),
        ({"a": entry(dtype="F4")}, "of format 'F4', which a .nncfx file cannot hold"),
        ({"a": entry(), "__metadata__": 3}, "its metadata is not an object"),
        ({"a": entry(), "__metadata__": {"nncfx": "{"}}, "is not JSON"),
        ({"a": entry(), "__metadata__": {"nncfx": "[1]"}}, "is not nncfx's"),
    ],
)
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, header: object, why: str) -> None:
    text = json.dumps(header).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(StorageError, match=why):
        pack_safetensors(path, tmp_path / "a.nncfx")
    assert not (tmp_path / "a.nncfx").exists()


@pytest.mark.parametrize("data", [b"", b"1234", struct.pack("<Q", 2**60) + b"{}"])
def test_a_file_too_short_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(data)
    with pytest.raises(StorageError):
        pack_safetensors(tmp_path / "a.safetensors", tmp_path / "a.nncfx")


def test_a_clustered_file_shrinks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weight = torch.from_numpy(rng.choice([0, 0, 0, 0, 0, 0, 0, 0.5, -0.5], 90_000)).float()
    save_file({"w": weight}, tmp_path / "a.safetensors")
    saved = pack_safetensors(tmp_path / "a.safetensors", tmp_path / "a.nncfx")
    # entropy: 7/9 zeros and twice 1/9 give 0.986 bits a weight
    assert saved.size_bytes < 1.02 * 0.986 * 90_000 / 8 + 200


def test_a_checkpoint_of_nncfx_comes_back_with_its_own_metadata(tmp_path: Path) -> None:
    """It has the name under which the container's own parts would stand."""
    model = nn.Linear(2, 2)
    checkpoint = nncfx.save(tmp_path / "a.safetensors", nncfx.quantize(model, [torch.ones(4, 2)]))
    pack_safetensors(checkpoint, tmp_path / "a.nncfx")
    unpack_safetensors(tmp_path / "a.nncfx", tmp_path / "b.safetensors")
    with (
        safe_open(checkpoint, framework="pt") as before,
        safe_open(tmp_path / "b.safetensors", framework="pt") as after,
    ):
        assert after.metadata() == before.metadata()
        assert set(after.keys()) == set(before.keys())
    nncfx.load(tmp_path / "b.safetensors", nn.Linear(2, 2))

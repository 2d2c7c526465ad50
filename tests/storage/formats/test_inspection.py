"""What inspect reports of each tensor."""

from pathlib import Path

import pytest
import torch
from torch import nn

from nncfx.errors import StorageError
from nncfx.storage.formats.inspection import inspect
from nncfx.storage.models.model_file import save


def test_each_tensor_has_its_shape_codec_and_bits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(100, 100)
    ternary = torch.sign(torch.randn(100, 100)) * (torch.rand(100, 100) < 0.5)
    model.weight.data = ternary * 0.1 + 0.0
    save(tmp_path / "a.nncfx", model, mode="fast")
    weight, bias = inspect(tmp_path / "a.nncfx")
    assert (weight.name, weight.shape, weight.dtype) == ("weight", (100, 100), "F32")
    assert weight.codec.endswith("+codebook")
    assert weight.bits_per_weight == 8 * weight.size_bytes / 10_000
    # half zero, a quarter each sign: 1.5 bits, up to the luck of the draw; Huffman adds no bit
    assert weight.entropy_bits == pytest.approx(1.5, abs=0.01)
    assert weight.entropy_bits < weight.bits_per_weight < 1.55
    assert bias.shape == (100,)


def test_a_constant_tensor_has_no_entropy(tmp_path: Path) -> None:
    model = nn.BatchNorm2d(64)
    save(tmp_path / "a.nncfx", model)
    rows = {row.name: row for row in inspect(tmp_path / "a.nncfx")}
    assert rows["running_var"].entropy_bits == 0.0
    assert rows["running_var"].size_bytes <= 6


def test_a_file_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "a.nncfx", nn.Linear(10, 10))
    with pytest.raises(StorageError, match="max_bytes=440"):
        inspect(tmp_path / "a.nncfx", max_bytes=439)

"""Adapters around layers of codes."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.errors import ArgumentError
from nncfx.quantization.packing.pack_weights import unpack_weights
from nncfx.quantization.weight_only import quantize_weights

X = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))


class Adapted(nn.Module):
    """As PEFT's layers: it adds to what its base computes, and can add to its weight instead."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base_layer = base
        self.delta = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.delta

    def merge(self, safe_merge: bool = False) -> None:
        del safe_merge
        self.base_layer.weight.data += self.delta


def adapted() -> nn.Module:
    torch.manual_seed(0)
    convolution = nn.Sequential(nn.Unflatten(1, (2, 16)), Adapted(nn.Conv1d(2, 4, 3)))
    return nn.Sequential(Adapted(nn.Linear(32, 32)), nn.ReLU(), *convolution).eval()


def test_nothing_is_merged_into_codes(tmp_path: Path) -> None:
    small = quantize_weights(adapted(), example_inputs=X, bits=8, pack=True)
    expected = small(X)
    nncfx.save(tmp_path / "small.nncfx", small)
    _, again = nncfx.load(tmp_path / "small.nncfx", adapted)
    for model in (small, copy.deepcopy(small), again):
        for index in (0, 3):
            with pytest.raises(ArgumentError, match="the adapter would be lost"):
                model[index].merge(safe_merge=True)
        assert torch.equal(model(X), expected)
    unpacked = unpack_weights(small, X)
    before = unpacked.get_parameter("0.base_layer.weight").clone()
    unpacked[0].merge()
    assert torch.equal(unpacked.get_parameter("0.base_layer.weight"), before + 1)

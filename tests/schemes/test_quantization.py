"""Quantize changes dtypes for real, and decompressing keeps the grid."""

import copy

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError, CompressionError
from nncfx.schemes import Quantize, footprint_bytes


def test_weights_and_biases_of_linear_and_conv_change_dtype(convnet: nn.Module) -> None:
    Quantize("float16").compress(convnet, 0.5)
    dtypes = {name: p.dtype for name, p in convnet.named_parameters()}
    halves = {name for name, dtype in dtypes.items() if dtype == torch.float16}
    assert halves == {f"{i}.{kind}" for i in (0, 3, 6, 8) for kind in ("weight", "bias")}
    assert halves == Quantize().parameters(convnet)
    assert dtypes["1.weight"] == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_decompressed_values_stay_on_the_grid(convnet: nn.Module, dtype: torch.dtype) -> None:
    scheme = Quantize(dtype)
    before = copy.deepcopy(convnet)
    scheme.compress(convnet, 0.0)
    scheme.decompress(convnet)
    for (name, now), old in zip(convnet.named_parameters(), before.parameters(), strict=True):
        expected = old.to(dtype).float() if name in scheme.parameters(before) else old
        assert now.dtype == torch.float32
        assert torch.equal(now, expected)
    convnet(torch.ones(1, 3, 8, 8))


def test_compressing_what_was_decompressed_changes_nothing(convnet: nn.Module) -> None:
    scheme = Quantize()
    scheme.compress(convnet, 0.0)
    once = copy.deepcopy(convnet)
    scheme.decompress(convnet)
    scheme.compress(convnet, 0.0)
    for a, b in zip(convnet.parameters(), once.parameters(), strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def test_a_shared_weight_stays_shared() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    Quantize().compress(model, 0.0)
    assert model[1].weight is model[0].weight
    assert model[1].weight.dtype == torch.float16


def test_a_model_that_has_gradients_can_be_quantized_and_trained_on() -> None:
    model = nn.Linear(3, 1)
    model(torch.ones(1, 3)).sum().backward()
    Quantize().compress(model, 0.0)
    assert model.weight.grad is None
    Quantize().decompress(model)
    model(torch.ones(1, 3)).sum().backward()
    assert model.weight.grad is not None
    assert model.weight.grad.dtype == torch.float32


def test_the_footprint_halves() -> None:
    model = nn.Linear(8, 8)
    before = footprint_bytes(model)
    Quantize().compress(model, 0.0)
    assert footprint_bytes(model) * 2 == before


def test_overflow_names_the_layer() -> None:
    model = nn.Sequential(nn.Linear(1, 1))
    nn.init.constant_(model[0].weight, 1e5)
    with pytest.raises(CompressionError, match="In '0': The largest magnitude, 100000"):
        Quantize().compress(model, 0.0)


def test_double_precision_is_restored_where_asked() -> None:
    model = nn.Linear(2, 2).double()
    scheme = Quantize("bfloat16", restore="float64")
    scheme.compress(model, 0.0)
    scheme.decompress(model)
    assert model.weight.dtype == torch.float64


def test_integers_are_no_floating_dtype() -> None:
    with pytest.raises(ArgumentError, match="'int8' is not a floating dtype"):
        Quantize("int8")

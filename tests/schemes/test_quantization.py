"""Quantize changes dtypes for real, and decompressing keeps the grid."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import nncfx
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


def test_other_integers_are_no_dtype_of_weights() -> None:
    with pytest.raises(ArgumentError, match="no floating dtype 'int16'"):
        Quantize("int16")


def test_int8_rounds_each_output_channel_to_its_own_step() -> None:
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[127.0, 1.4, -0.6], [-2.54, 0.031, 0.0]]))
    bias = model.bias.detach().clone()
    Quantize("int8").compress(model, 0.0)
    # steps 1 and 0.02
    expected = torch.tensor([[127.0, 1.0, -1.0], [-2.54, 0.04, 0.0]])
    torch.testing.assert_close(model.weight.detach(), expected, rtol=1e-6, atol=0)
    assert torch.equal(model.bias, bias)
    assert Quantize("int8").parameters(model) == {"weight"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("seed", range(5))
def test_int8_rounding_again_changes_nothing(dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    model = nn.Conv2d(5, 40, 3).to(dtype)
    scheme = Quantize("int8")
    scheme.compress(model, 0.0)
    once = model.weight.detach().clone()
    assert all(len(row.unique()) <= 255 for row in once)
    scheme.decompress(model)
    assert model.weight.dtype == dtype
    scheme.compress(model, 0.0)
    assert torch.equal(model.weight, once)


@pytest.mark.parametrize("shape", [(64, 27), (128, 256), (2, 128)])
def test_int8_takes_a_byte_a_weight_on_disk_as_the_footprint_says(
    shape: tuple[int, int], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = nn.Linear(shape[1], shape[0], bias=False)  # uniform: hardly a code comes twice
    Quantize("int8").compress(model, 0.0)
    held = nncfx.storage.save(tmp_path / "int8.nncfx", model).size_bytes
    scales_and_head = 4 * shape[0] + 400
    assert held < 1.05 * model.weight.numel() + scales_and_head
    assert footprint_bytes(model) == int(model.weight.count_nonzero())


def test_int8_moves_no_weight_by_more_than_half_a_step() -> None:
    torch.manual_seed(0)
    model = nn.Linear(50, 20)
    before = model.weight.detach().clone()
    Quantize("int8").compress(model, 0.0)
    half = before.abs().amax(1, keepdim=True) / 127 / 2
    # one rounding of float32 on top
    assert ((model.weight - before).abs() <= half * (1 + 1e-5)).all()


def test_int8_keeps_rows_of_zeros_and_refuses_what_is_not_finite() -> None:
    model = nn.Linear(2, 2)
    nn.init.zeros_(model.weight)
    Quantize("int8").compress(model, 0.0)
    assert not model.weight.any()
    with torch.no_grad():
        model.weight[0, 0] = torch.inf
    with pytest.raises(CompressionError, match="not finite"):
        Quantize("int8").compress(model, 0.0)

"""Layers that decode their weights as they run."""

import pytest
import torch
from torch.nn import functional as F

from nncfx.quantization.grid.fake_quantize import fake_quantize, qparams_from_range, rows_of
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.grid.stored_weights import on_grid
from nncfx.quantization.packing.layers import PackedEmbedding, PackedLinear
from nncfx.quantization.packing.pack_weights import spec_of
from nncfx.storage.models.integer_tensor import IntegerTensor

SPECS = {
    "int8": QuantizerSpec(axis=0, narrow=True),
    "int8 in groups": QuantizerSpec(group=32, narrow=True),
    "uint8": QuantizerSpec(axis=0, mode="asymmetric", signed=False),
    "int4": QuantizerSpec(bits=4, group=32),
    "uint4": QuantizerSpec(bits=4, group=32, mode="asymmetric", signed=False),
    "int4 by row": QuantizerSpec(bits=4, axis=0),
    "uint4 by row": QuantizerSpec(bits=4, axis=0, mode="asymmetric", signed=False),
    "nf4": QuantizerSpec(bits=4, mode="nf4", group=32),
    "mxfp4": QuantizerSpec(bits=4, mode="float4_e2m1", group=32, power_of_two=True),
    "float8": QuantizerSpec(mode="float8_e4m3", axis=0),
}


def stored(weight: torch.Tensor, spec: QuantizerSpec) -> tuple[IntegerTensor, torch.Tensor]:
    rows = weight if spec.group is None else rows_of(weight, spec)
    scale, zero = qparams_from_range(rows.float().amin(1), rows.float().amax(1), spec)
    grid = scale.to(weight.dtype).float(), zero
    return on_grid(weight, *grid, spec), fake_quantize(weight, *grid, spec)


@pytest.mark.parametrize("inputs", [160, 32, 96])
@pytest.mark.parametrize("kind", SPECS)
def test_a_layer_of_codes_computes_with_the_weight_that_the_grid_makes(
    kind: str, inputs: int
) -> None:
    """160 inputs are five groups, 96 are three: the halves of the bytes are not alike."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(24, inputs, generator=generator)
    x, bias = torch.randn(2, 3, inputs, generator=generator), torch.randn(24, generator=generator)
    integers, rounded = stored(weight, SPECS[kind])
    layer = PackedLinear(integers, bias)
    assert torch.equal(layer.weight, rounded)
    torch.testing.assert_close(layer(x), F.linear(x, rounded, bias), rtol=1e-5, atol=2e-5)
    assert torch.equal(layer.integers().values, integers.values)
    assert torch.equal(layer.integers().zero_point, integers.zero_point)
    table = PackedEmbedding(integers)
    tokens = torch.tensor([[3, 0], [23, 3]])
    torch.testing.assert_close(table(tokens), rounded[tokens])
    again = spec_of(layer.integers())
    assert (again.mode, again.bits) == (SPECS[kind].mode, SPECS[kind].bits)


@pytest.mark.parametrize(
    ("kind", "most"),
    [("int8", 1.05), ("int4", 0.66), ("uint4", 0.66), ("nf4", 0.66), ("mxfp4", 0.66)],
)
def test_bytes_a_weight_in_memory(kind: str, most: float) -> None:
    layer = PackedLinear(stored(torch.randn(256, 512), SPECS[kind])[0])
    assert sum(one.nbytes for one in layer.buffers()) <= most * 256 * 512


def test_float8_is_stored_as_torch_has_it() -> None:
    weight = torch.randn(24, 64)
    layer = PackedLinear(stored(weight, SPECS["float8"])[0])
    assert layer.codes.dtype == torch.float8_e4m3fn
    scale = weight.abs().amax(1, keepdim=True) / 448
    assert torch.equal(layer.codes.T.float(), (weight / scale).to(torch.float8_e4m3fn).float())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_what_is_decoded_follows_the_type_of_the_model(dtype: torch.dtype) -> None:
    weight = torch.randn(24, 32, generator=torch.Generator().manual_seed(0))
    integers, rounded = stored(weight, SPECS["int4"])
    table = PackedEmbedding(integers).to(dtype)
    found = table(torch.arange(24))
    assert found.dtype == table.weight.dtype == dtype
    torch.testing.assert_close(found.float(), rounded, rtol=0.02, atol=0.02)


def test_rows_of_half_precision_are_multiplied_in_it() -> None:
    weight = torch.randn(24, 64).bfloat16()
    integers, rounded = stored(weight, SPECS["uint4"])
    x = torch.randn(5, 64).bfloat16()
    found = PackedLinear(integers)(x)
    assert found.dtype == PackedLinear(integers).scale.dtype == torch.bfloat16
    torch.testing.assert_close(found, F.linear(x, rounded), rtol=0.02, atol=0.1)

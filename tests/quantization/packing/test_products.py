"""Products with codes by compiled loops."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nncfx.quantization.grid.fake_quantize import qparams_from_range, rows_of
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.grid.stored_weights import on_grid
from nncfx.quantization.packing import layers, parts, products
from nncfx.quantization.packing.layers import PackedLinear
from nncfx.quantization.packing.products import is_served
from nncfx.storage.compiled import IS_COMPILED

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="needs numba")

SPECS = {
    "int8": QuantizerSpec(axis=0, narrow=True),
    "int8 in groups": QuantizerSpec(group=27, mode="asymmetric"),
    "uint8": QuantizerSpec(axis=0, mode="asymmetric", signed=False),
    "uint8 in groups": QuantizerSpec(group=27, mode="asymmetric", signed=False),
    "int4": QuantizerSpec(bits=4, group=27),
    "int4 with zero points": QuantizerSpec(bits=4, group=27, mode="asymmetric"),
    "uint4": QuantizerSpec(bits=4, group=27, mode="asymmetric", signed=False),
    "int4 by row": QuantizerSpec(bits=4, axis=0),
    "uint4 by row": QuantizerSpec(bits=4, axis=0, mode="asymmetric", signed=False),
}


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have small layers multiplied so, in more than one tile, by as many threads as there are."""
    monkeypatch.setattr(products, "_WORTH_COMPILING", 0)
    monkeypatch.setattr(products, "_MOST_THREADS", 1 << 10)
    monkeypatch.setattr(parts, "_TILE", (20, 64))


def layer_of(kind: str, outputs: int = 101, inputs: int = 135) -> PackedLinear:
    generator = torch.Generator().manual_seed(0)
    weight, spec = torch.randn(outputs, inputs, generator=generator) + 0.3, SPECS[kind]
    rows = weight if spec.group is None else rows_of(weight, spec)
    grid = qparams_from_range(rows.amin(1), rows.amax(1), spec)
    return PackedLinear(on_grid(weight, *grid, spec), torch.randn(outputs, generator=generator))


@pytest.mark.parametrize("count", [0, 1, 3, 5, 37])
@pytest.mark.parametrize("kind", SPECS)
def test_products_are_those_with_the_weight_that_the_codes_stand_for(
    kind: str, count: int
) -> None:
    """No size is a multiple of another: 135 inputs are five groups of 27."""
    layer = layer_of(kind)
    x = torch.randn(count, 135, generator=torch.Generator().manual_seed(1))
    assert is_served(x, layer.codes)
    # sums of 135 products of some units, each rounded by 6e-8
    expected = F.linear(x.double(), layer.weight.double(), layer.bias.double())
    torch.testing.assert_close(layer(x).double(), expected, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("inputs", [1, 27, 81])
@pytest.mark.parametrize("kind", ["int8", "uint4 by row", "uint4"])
def test_odd_halves_and_single_groups_are_multiplied(kind: str, inputs: int) -> None:
    if inputs == 1 and kind == "uint4":
        pytest.skip("a group has 27 inputs")
    layer = layer_of(kind, outputs=7, inputs=inputs)
    for count in (2, 6):
        x = torch.randn(count, inputs, generator=torch.Generator().manual_seed(2))
        expected = F.linear(x, layer.weight, layer.bias)
        torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("kind", SPECS)
def test_without_numba_the_layer_computes_the_same(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x = layer_of(kind), torch.randn(6, 135)
    found = layer(x), layer(x[:1])
    monkeypatch.setattr(products, "IS_COMPILED", False)
    assert not is_served(x, layer.codes)
    for one, other in zip(found, (layer(x), layer(x[:1])), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=3e-5)


def test_without_blas_many_rows_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program calls all the same is multiplied as it is decoded."""
    layer, x = layer_of("uint4"), torch.randn(6, 135)
    monkeypatch.setattr(products, "HAS_BLAS", False)
    assert is_served(x[:4], layer.codes)
    assert not is_served(x, layer.codes)
    expected = layer(x)
    monkeypatch.setattr(layers, "is_served", lambda *_: True)
    torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=3e-5)


def test_decoded_tiles_are_the_weight_to_the_last_bit() -> None:
    """Products with rows of the unit matrix have one term that is not zero."""
    for kind in SPECS:
        layer = layer_of(kind)
        layer.bias = None
        assert torch.equal(layer(torch.eye(135)), layer.weight.T)


def test_inputs_that_lie_in_any_way_are_multiplied() -> None:
    layer = layer_of("uint4")
    x = torch.randn(135, 2, 3)
    expected = F.linear(x.permute(1, 2, 0), layer.weight, layer.bias)
    torch.testing.assert_close(layer(x.permute(1, 2, 0)), expected, rtol=1e-5, atol=3e-5)


def test_exported_programs_do_not_hold_the_operator() -> None:
    program = torch.export.export(layer_of("uint4"), (torch.randn(5, 135),))
    assert "nncfx" not in str(program.graph)


def test_half_precision_and_inputs_with_gradients_take_other_ways() -> None:
    layer = layer_of("uint4")
    x = torch.randn(3, 135, requires_grad=True)
    layer(x).sum().backward()
    assert isinstance(x.grad, Tensor)
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(3, 135))
    assert not is_served(x.bfloat16(), layer.codes)


def test_a_compiled_program_calls_the_operator_for_any_number_of_rows() -> None:
    model = nn.Sequential(layer_of("uint4"), nn.ReLU())
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.no_grad():
        for count in (2, 9, 5):
            x = torch.randn(count, 135)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=3e-5)

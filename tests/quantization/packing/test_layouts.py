"""Matrices as other programs' files hold them."""

import pytest
import torch

from nncfx.errors import ArgumentError
from nncfx.quantization.blocks.weight_formats import fitted_grid, format_spec
from nncfx.quantization.grid.stored_weights import on_grid
from nncfx.quantization.packing.layouts import LAYOUTS


@pytest.mark.parametrize(
    ("layout", "weights"), [(one.name, kind) for one in LAYOUTS.values() for kind in one.formats]
)
@pytest.mark.parametrize("group", [32, None])
def test_what_is_written_is_read_back(layout: str, weights: str, group: int | None) -> None:
    if weights == "mxfp4":
        group = None
    weight = torch.randn(16, 96, generator=torch.Generator().manual_seed(0))
    spec = format_spec(weights, group, 96)
    stored = on_grid(weight, *fitted_grid(weight, spec, half_scales=True), spec)
    parts = LAYOUTS[layout].tensors(stored)
    again = LAYOUTS[layout].read(parts, (16, 96), torch.float32)
    assert torch.equal(again.dequantize(), stored.dequantize())


def test_words_hold_eight_codes_the_first_in_the_lowest_bits() -> None:
    weight = torch.tensor([[-8.0, -7, 0, 1, 2, 3, 7, -1]]).repeat(8, 1)
    spec = format_spec("int4", None, 8)
    stored = on_grid(weight, torch.ones(8), torch.zeros(8), spec)
    packed = LAYOUTS["compressed-tensors"].tensors(stored)["weight_packed"]
    assert packed[0].item() % 2**32 == 0x7FBA9810


def test_matrices_that_fill_no_words_are_refused() -> None:
    weight = torch.randn(6, 32)
    spec = format_spec("int4", 32, 32)
    stored = on_grid(weight, *fitted_grid(weight, spec), spec)
    with pytest.raises(ArgumentError, match="6 x 32 does not fit words"):
        LAYOUTS["gptq"].tensors(stored)

"""Matrices as the blocks of GGUF, read back by gguf."""

import pytest
import torch
from torch import Tensor

from nncfx.errors import ArgumentError
from nncfx.quantization.blocks.weight_formats import fitted_grid, format_spec
from nncfx.quantization.checkpoints.gguf_blocks import block_type
from nncfx.quantization.grid.stored_weights import on_grid
from nncfx.storage.models.integer_tensor import IntegerTensor

gguf = pytest.importorskip("gguf")


def stored(weights: str, group: int | None = 32) -> IntegerTensor:
    weight = torch.randn(16, 128, generator=torch.Generator().manual_seed(0))
    spec = format_spec(weights, group, 128)
    return on_grid(weight, *fitted_grid(weight, spec, half_scales=True), spec)


def read(matrix: IntegerTensor) -> Tensor:
    kind = block_type(matrix)
    rows = kind.rows(matrix)
    assert rows.shape == (16, 4 * kind.bytes)
    return torch.from_numpy(gguf.dequantize(rows, gguf.GGMLQuantizationType[kind.name]))


@pytest.mark.parametrize(
    ("weights", "name", "group"),
    [
        ("int8", "Q8_0", 32), ("int8", "Q8_0", None), ("int4", "Q4_0", 32), ("int4", "Q4_0", 64),
        ("mxfp4", "MXFP4", None),
    ],
)  # fmt: skip
def test_gguf_reads_the_very_numbers(weights: str, name: str, group: int | None) -> None:
    matrix = stored(weights, group)
    assert block_type(matrix).name == name
    assert torch.equal(read(matrix), matrix.dequantize())


@pytest.mark.parametrize("group", [32, 128])
def test_zero_points_become_the_smallest_weight_in_float16(group: int) -> None:
    matrix = stored("uint4", group)
    assert block_type(matrix).name == "Q4_1"
    smallest = (matrix.scale * matrix.zero_point).repeat_interleave(group).view(16, 128)
    error = (read(matrix) - matrix.dequantize()).abs()
    assert bool((error <= smallest * 2**-11 + 1e-6).all())


@pytest.mark.parametrize("weights", ["nf4", "float8_e4m3"])
def test_formats_that_gguf_lacks_are_refused(weights: str) -> None:
    with pytest.raises(ArgumentError, match="GGUF has no type for weights of torch"):
        block_type(stored(weights))


def test_groups_of_other_sizes_are_refused() -> None:
    matrix = stored("int4", 16)
    with pytest.raises(
        ArgumentError, match="16 x 128 with groups of 16 does not fit blocks of 32"
    ):
        block_type(matrix).rows(matrix)


def test_a_scale_that_float16_does_not_hold_is_refused() -> None:
    matrix = stored("int4")
    matrix.scale[3] = 70_000.0
    with pytest.raises(ArgumentError, match=r"A scale is 7e\+04, above what float16 holds"):
        block_type(matrix).rows(matrix)

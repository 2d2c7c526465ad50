"""HQQ: grids that leave sparse errors."""

import pytest
import torch
from torch import Tensor

from nncfx.quantization.grid.fake_quantize import fake_quantize, qparams_from_range
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.ranges.half_quadratic import half_quadratic_grid, shrunk, sparse_errors

UINT4 = QuantizerSpec(bits=4, mode="asymmetric", signed=False, axis=0)
INT4 = QuantizerSpec(bits=4, axis=0)
NF4 = QuantizerSpec(bits=4, mode="nf4", axis=0)


def heavy_tails() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(300, 64, generator=generator)
    return normal * torch.rand(300, 64, generator=generator).add(0.02).rsqrt()


def whole_range(rows: Tensor, spec: QuantizerSpec) -> tuple[Tensor, Tensor]:
    return qparams_from_range(rows.amin(1), rows.amax(1), spec)


@pytest.mark.parametrize("spec", [UINT4, INT4, NF4])
def test_no_row_has_a_larger_norm_than_rounding_to_nearest(spec: QuantizerSpec) -> None:
    rows = heavy_tails()
    start = whole_range(rows, spec)
    found = half_quadratic_grid(rows, start, spec)
    before, after = (
        sparse_errors(rows, fake_quantize(rows, *grid, spec)) for grid in (start, found)
    )
    assert (after <= before).all()
    assert after.sum() < 0.99 * before.sum()


def test_by_hand_one_outlier_is_let_go() -> None:
    """0, 1, ..., 14 are on the grid of step 1, and the range begun with has steps of 1.02.

    Least squares would stretch the grid towards 20: for it, one error of 5 is much.
    """
    rows = torch.tensor([[float(one) for one in range(15)] * 4 + [20.0]])
    start = torch.tensor([1.02]), torch.tensor([0.0])
    scale, zero = half_quadratic_grid(rows, start, UINT4)
    torch.testing.assert_close(scale, torch.tensor([1.0]), rtol=0.003, atol=0)
    assert (zero == 0).all()
    wide = torch.tensor([20 / 15]), torch.tensor([0.0])
    norms = [
        sparse_errors(rows, fake_quantize(rows, *one, UINT4)) for one in ((scale, zero), wide)
    ]
    assert norms[0] < norms[1] / 3


def test_zero_points_are_whole_numbers_of_the_format() -> None:
    rows = heavy_tails() + torch.linspace(-3, 3, 300).unsqueeze(1)
    start = whole_range(rows, UINT4)
    scale, zero = half_quadratic_grid(rows, start, UINT4)
    assert torch.equal(zero, zero.round())
    assert ((zero >= 0) & (zero <= 15)).all()
    assert (zero != start[1]).any()
    assert (scale > 0).all()


def test_a_factor_of_the_weights_is_one_of_the_scales() -> None:
    """A power of two changes no rounding."""
    rows = heavy_tails()
    scale, zero = half_quadratic_grid(rows, whole_range(rows, UINT4), UINT4)
    small = half_quadratic_grid(rows / 64, whole_range(rows / 64, UINT4), UINT4)
    assert torch.equal(small[0] * 64, scale)
    assert torch.equal(small[1], zero)


def test_rows_of_zeros_keep_their_grid() -> None:
    rows = torch.zeros(3, 16)
    start = whole_range(rows, UINT4)
    found = half_quadratic_grid(rows, start, UINT4)
    assert all(torch.equal(*pair) for pair in zip(found, start, strict=True))


def test_shrinking_is_the_threshold_of_the_paper() -> None:
    """0.2 - 0.2^-0.3 / 10 = 0.2 - 0.16207 = 0.03793."""
    torch.testing.assert_close(
        shrunk(torch.tensor([0.2, -0.2, 0.0]), 10.0),
        torch.tensor([0.03793, -0.03793, 0.0]),
        rtol=0,
        atol=1e-5,
    )

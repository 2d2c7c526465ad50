"""Shares of a row's range."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nncfx.quantization.grid.fake_quantize import fake_quantize, qparams_from_range
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.ranges.range_shares import best_shares


def test_without_outliers_the_whole_range_is_quantized_and_one_outlier_is_clipped() -> None:
    spec = QuantizerSpec(bits=4, axis=0, narrow=True)
    even = torch.arange(-7.0, 8.0)
    outlier = torch.cat([torch.linspace(-1, 1, 400), torch.tensor([2.0])])
    assert best_shares(even.view(1, -1), spec).item() == 1
    assert best_shares(outlier.view(1, -1), spec).item() < 1


@given(st.integers(0, 1000))
def test_the_share_taken_is_never_worse_than_the_whole_range(seed: int) -> None:
    rows = torch.randn(5, 32, generator=torch.Generator().manual_seed(seed))
    spec = QuantizerSpec(bits=4, mode="asymmetric", signed=False, axis=0)

    def error(share: Tensor) -> Tensor:
        grid = qparams_from_range(rows.amin(1) * share, rows.amax(1) * share, spec)
        return (fake_quantize(rows, *grid, spec) - rows).square().sum(1)

    assert (error(best_shares(rows, spec)) <= error(torch.ones(5))).all()


def test_weights_that_do_not_count_may_be_clipped() -> None:
    spec = QuantizerSpec(bits=4, axis=0, narrow=True)
    row = torch.tensor([[0.5, -0.45, 0.37, 1.0]])
    counts = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    assert best_shares(row, spec, counts).item() == 0.5
    assert best_shares(row, spec, torch.ones(1, 4)) == best_shares(row, spec)

"""Formats by name."""

import logging

import pytest
import torch

from nncfx.quantization.blocks.weight_formats import WEIGHT_FORMATS, fitted_grid, format_spec
from nncfx.quantization.grid.fake_quantize import fake_quantize, qparams_from_range


@pytest.mark.parametrize(
    ("width", "group", "found"), [(128, 64, 64), (96, 64, 32), (80, 64, 16), (40, 32, None)]
)
def test_groups_are_halved_until_they_fit(
    width: int, group: int, found: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        spec = format_spec("int4", group, width)
    assert (spec.group, spec.axis) == (found, 0 if found is None else None)
    assert bool(caplog.text) == (found != group)


@pytest.mark.parametrize("name", WEIGHT_FORMATS)
def test_a_fitted_grid_is_no_worse_than_one_that_holds_everything(name: str) -> None:
    weight = torch.randn(32, 64, generator=torch.Generator().manual_seed(0))
    spec = format_spec(name, None if name == "mxfp4" else 32, 64)
    rows = weight.reshape(-1, spec.group or 64)
    whole = qparams_from_range(rows.amin(1), rows.amax(1), spec.replace(group=None, axis=0))
    errors = [
        (fake_quantize(weight, *grid, spec) - weight).square().mean()
        for grid in (fitted_grid(weight, spec), whole)
    ]
    assert errors[0] <= errors[1] < weight.var() / 50


def test_scales_are_as_the_precision_of_the_weight_holds_them() -> None:
    weight = torch.randn(8, 64).bfloat16()
    scale, _ = fitted_grid(weight, format_spec("uint4", 32, 64))
    assert scale.dtype == torch.float32
    assert torch.equal(scale.bfloat16().float(), scale)

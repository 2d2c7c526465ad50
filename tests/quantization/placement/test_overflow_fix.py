"""Which weights lose a bit, and on which processors that is needed."""

from typing import cast

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import ArgumentError
from nncfx.quantization import QuantizeOptions, Quantizer, SpecRequest, quantize
from nncfx.quantization.placement.overflow_fix import OverflowFix
from nncfx.quantization.placement.placement_options import PlacementOptions
from nncfx.tracing import WeightSite


def largest_integers(
    fix: OverflowFix | None, bits: int = 8, target: str = "onnxruntime"
) -> list[int]:
    """Return the ends of the grids of three weights."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
    placement = PlacementOptions(weights=SpecRequest(bits=bits))
    options = QuantizeOptions(overflow_fix=fix, placement=placement)
    hooks = quantize(model, [torch.randn(8, 4)], target=target, options=options).nncf.hooks
    return [
        cast("Quantizer", one.hook).spec.quant_max
        for one in hooks
        if isinstance(one.site, WeightSite)
    ]


@pytest.mark.parametrize(
    ("fix", "expected"),
    [
        ("disable", [127, 127, 127]),
        ("first_layer_only", [63, 127, 127]),
        ("enable", [63, 63, 63]),
    ],
)
def test_bytes_lose_a_bit(fix: OverflowFix, expected: list[int]) -> None:
    assert largest_integers(fix) == expected


def test_four_bits_stay_four() -> None:
    assert largest_integers("enable", bits=4) == [7, 7, 7]


@pytest.mark.parametrize(
    ("target", "fix", "expected"),
    [
        ("onnxruntime", None, [127, 127, 127]),
        ("onnxruntime_avx2", None, [63, 63, 63]),
        ("onnxruntime_avx2", "disable", [127, 127, 127]),
    ],
)
def test_the_target_decides_where_nothing_is_said(
    target: str, fix: OverflowFix | None, expected: list[int]
) -> None:
    assert largest_integers(fix, target=target) == expected


def test_the_target_of_a_config_decides_as_well() -> None:
    config = {"compression": {"algorithm": "quantization", "target": "onnxruntime_avx2"}}
    x = torch.randn(8, 4)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    _, wrapped = nncfx.create_compressed_model(model, config, x, calibration_batches=[x])
    weights = [one for one in wrapped.nncf.hooks if isinstance(one.site, WeightSite)]
    assert [cast("Quantizer", one.hook).spec.quant_max for one in weights] == [63, 63]


def test_an_unknown_fix_is_refused_with_the_nearest() -> None:
    with pytest.raises(ArgumentError, match=r"'enabled'; it is one of .*Did you mean 'enable'"):
        largest_integers(cast("OverflowFix", "enabled"))
    with pytest.raises(ArgumentError, match="overflow_fix is 'True'"):
        largest_integers(cast("OverflowFix", True))

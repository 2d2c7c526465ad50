"""Which weights lose a bit, and on which processors that is needed."""

import logging
from collections.abc import Callable
from typing import TypeAlias, cast

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import ArgumentError
from nncfx.quantization import QuantizeOptions, Quantizer, SpecRequest, quantize
from nncfx.quantization.placement.overflow_fix import OverflowFix
from nncfx.quantization.placement.placement_options import PlacementOptions
from nncfx.quantization.placement.plan_model import plan_model
from nncfx.tracing import WeightSite
from small_models import Function

Told: TypeAlias = Callable[[str, OverflowFix | None], list[str]]


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
    [("disable", [127, 127, 127]), ("first_layer_only", [63, 127, 127]), ("enable", [63, 63, 63])],
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
    with pytest.raises(ArgumentError, match=r"no overflow_fix 'enabled'\. Did you mean 'enable'"):
        largest_integers(cast("OverflowFix", "enabled"))
    with pytest.raises(ArgumentError, match="no overflow_fix 'True'"):
        largest_integers(cast("OverflowFix", True))


def counted() -> nn.Module:
    """A table, two layers with weights, and a product without: two have sums of bytes."""
    return Function(
        lambda m, x: (y := m.layers(m.table(x))) @ y.mT,
        table=nn.Embedding(8, 4),
        layers=nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)),
    )


@pytest.fixture(params=["quantize", "create_compressed_model"])
def told(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Told:
    """Return what the log says of sums when grids are chosen for a target, with or without fix."""

    def told(target: str, fix: OverflowFix | None) -> list[str]:
        model, x = counted(), torch.arange(8).view(2, 4)
        with caplog.at_level(logging.WARNING, logger="nncfx"):
            if request.param == "quantize":
                quantize(model, [x], target=target, options=QuantizeOptions(overflow_fix=fix))
            else:
                item = {"algorithm": "quantization", "target": target}
                item |= {"overflow_fix": fix} if fix else {}
                nncfx.create_compressed_model(
                    model, {"compression": item}, x, calibration_batches=[x]
                )
        return [one.getMessage() for one in caplog.records if "VNNI" in one.getMessage()]

    return told


def has_vnni(monkeypatch: pytest.MonkeyPatch, has: bool) -> None:
    known = {"architecture": "x86_64", "avx2": True, "avx_vnni": has}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)


@pytest.mark.parametrize(
    ("target", "fix"),
    [
        ("onnxruntime", "Let the session have the config entry"),
        ("openvino", "OpenVINO has no setting for it"),
    ],
)
def test_sums_that_do_not_fit_are_told_once_when_grids_are_chosen(
    monkeypatch: pytest.MonkeyPatch, told: Told, target: str, fix: str
) -> None:
    has_vnni(monkeypatch, False)
    (message,) = told(target, None)
    assert "the sums of 2 layers with 8 bits of weights" in message
    assert fix in message


@pytest.mark.parametrize(
    ("target", "fix", "has"),
    [
        ("onnxruntime", None, True),
        ("onnxruntime", "enable", False),
        ("onnxruntime-avx2", None, False),
        ("tensorrt", None, False),
    ],
)
def test_sums_that_fit_or_run_elsewhere_are_not_told(
    monkeypatch: pytest.MonkeyPatch, told: Told, target: str, fix: OverflowFix | None, has: bool
) -> None:
    has_vnni(monkeypatch, has)
    assert told(target, fix) == []


def test_a_plan_of_which_nothing_is_made_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    has_vnni(monkeypatch, False)
    network = nncfx.wrap(counted(), torch.arange(8).view(2, 4))
    plan = plan_model(network, "onnxruntime", PlacementOptions())
    assert plan.saturating == 2
    assert not caplog.text

"""A program that Inductor would compute wrongly on the CPU at hand is told, with the mend."""

import logging

import pytest
import torch
from torch import nn
from torch._inductor import config as inductor_config

import nncfx
from nncfx.export import export_program
from nncfx.export.checks.saturation_check import overflowing_readers
from nncfx.network import NNCFNetwork
from nncfx.processors import byte_sums_saturate
from nncfx.quantization import QuantizeOptions
from nncfx.quantization.placement.overflow_fix import OverflowFix


def made(fix: OverflowFix) -> tuple[NNCFNetwork, torch.Tensor]:
    """Two layers of positive weights over positive inputs: every sum of two is near its limit."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4))
    for layer in (model[0], model[2]):
        nn.init.uniform_(layer.weight, 0.8, 1.0)
    x = torch.rand(16, 64) + 1
    return nncfx.quantize(model, [x], options=QuantizeOptions(overflow_fix=fix)), x


@pytest.mark.parametrize(
    ("fix", "expected"), [("disable", 2), ("first_layer_only", 1), ("enable", 0)]
)
def test_layers_with_integers_beyond_64_are_found(fix: OverflowFix, expected: int) -> None:
    model, x = made(fix)
    program = export_program(model, x)
    assert len(overflowing_readers(program.module())) == expected


@pytest.mark.parametrize("saturates", [True, False])
def test_it_is_told_where_the_cpu_saturates(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, saturates: bool
) -> None:
    monkeypatch.setattr(
        "nncfx.export.checks.saturation_check.byte_sums_saturate", lambda: saturates
    )
    model, x = made("disable")
    with caplog.at_level(logging.WARNING, "nncfx.export"):
        export_program(model, x)
    told = "Inductor adds products of bytes in 16 bits here, too few for the sums of 2 layers"
    assert (told in caplog.text) == saturates


@pytest.mark.skipif(not byte_sums_saturate(), reason="this CPU adds products of bytes exactly")
@pytest.mark.filterwarnings("ignore")  # Inductor warns of itself
@pytest.mark.parametrize(("fix", "is_near"), [("disable", False), ("enable", True)])
def test_what_is_told_is_so(fix: OverflowFix, is_near: bool) -> None:
    model, x = made(fix)
    with torch.no_grad(), inductor_config.patch(freezing=True):
        found = torch.compile(export_program(model, x).module())(x)
        error = float((found - model(x)).abs().max() / model(x).abs().max())
    assert (error < 0.01) == is_near

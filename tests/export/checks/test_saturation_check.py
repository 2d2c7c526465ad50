"""A file, or a program, that the CPU at hand would compute wrongly is told, and the fixes help."""

import logging
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn
from torch._inductor import config as inductor_config

import nncfx
from nncfx.export import export_onnx, export_program
from nncfx.export.checks.saturation_check import overflowing_layers, overflowing_readers
from nncfx.network import NNCFNetwork
from nncfx.processors import byte_sums_saturate
from nncfx.quantization import QuantizeOptions, quantize_weights
from nncfx.quantization.placement.overflow_fix import OverflowFix
from onnx_files import run_file

CHECK = "nncfx.export.checks.saturation_check.byte_sums_saturate"
PLAN = "nncfx.quantization.placement.overflow_fix.byte_sums_saturate"


def made(fix: OverflowFix = "disable") -> tuple[NNCFNetwork, torch.Tensor]:
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
def test_layers_with_integers_beyond_64_are_found(
    tmp_path: Path, fix: OverflowFix, expected: int
) -> None:
    model, x = made(fix)
    file = export_onnx(model, tmp_path / "m.onnx", x)
    assert len(overflowing_layers(ir.load(file.path).graph)) == expected
    assert len(overflowing_readers(export_program(model, x).module())) == expected


def test_weights_alone_overflow_nothing(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(64, 32), nn.ReLU()), torch.rand(2, 64)
    file = export_onnx(quantize_weights(model, [x]), tmp_path / "m.onnx", x, target="openvino")
    assert overflowing_layers(ir.load(file.path).graph) == ()


@pytest.mark.parametrize(
    ("target", "fix"),
    [
        ("onnxruntime", "'session.x64quantprecision'"),
        ("onnxruntime_avx2", "or target='onnxruntime-avx2'"),
        ("openvino", "has no setting"),
        ("tensorrt", ""),
    ],
)
@pytest.mark.parametrize("saturates", [True, False])
def test_it_is_told_where_the_cpu_saturates_and_the_target_runs_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    saturates: bool,
    target: str,
    fix: str,
) -> None:
    monkeypatch.setattr(PLAN, lambda: False)  # quantized on another CPU
    monkeypatch.setattr(CHECK, lambda: saturates)
    model, x = made()
    with caplog.at_level(logging.WARNING, logger="nncfx"):
        export_onnx(model, tmp_path / "m.onnx", x, target)
    told = [one.getMessage() for one in caplog.records if "VNNI" in one.getMessage()]
    assert len(told) == (saturates and bool(fix))
    assert all(
        fix in one and "of 2 layers" in one and "overflow_fix='enable'" in one for one in told
    )


@pytest.mark.parametrize(("exported_for", "count"), [("onnxruntime", 1), ("openvino", 2)])
def test_what_was_told_when_it_was_quantized_is_not_told_again_for_the_same_target(
    exported_for: str,
    count: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(PLAN, lambda: True)
    monkeypatch.setattr(CHECK, lambda: True)
    with caplog.at_level(logging.WARNING, logger="nncfx"):
        model, x = made()
        export_onnx(model, tmp_path / "m.onnx", x, exported_for)
    assert sum("VNNI" in one.getMessage() for one in caplog.records) == count


@pytest.mark.parametrize(
    ("runtime", "fix"),
    [("onnxruntime", "disable"), ("onnxruntime", "enable"), ("openvino", "enable")],
)
def test_on_every_cpu_each_fix_gives_what_is_simulated(
    tmp_path: Path, runtime: str, fix: OverflowFix
) -> None:
    pytest.importorskip(runtime)
    model, x = made(fix)
    file = export_onnx(model, tmp_path / "m.onnx", x, runtime)
    (found,) = run_file(file, x, runtime)
    expected = model(x).detach().numpy()
    # one step of the hidden activations, of which each output sums 32
    assert np.abs(found - expected).max() < 1e-2 * np.abs(expected).max()


@pytest.mark.parametrize("saturates", [True, False])
def test_a_program_is_told_where_the_cpu_saturates(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, saturates: bool
) -> None:
    monkeypatch.setattr(CHECK, lambda: saturates)
    model, x = made()
    with caplog.at_level(logging.WARNING, "nncfx.export"):
        export_program(model, x)
    told = "Inductor adds products of bytes in 16 bits here, too few for the sums of 2 layers"
    assert (told in caplog.text) == saturates


@pytest.mark.skipif(not byte_sums_saturate(), reason="this CPU adds products of bytes exactly")
@pytest.mark.filterwarnings("ignore")  # Inductor warns of itself
@pytest.mark.parametrize(("fix", "is_near"), [("disable", False), ("enable", True)])
def test_what_is_told_of_a_program_is_so(fix: OverflowFix, is_near: bool) -> None:
    model, x = made(fix)
    with torch.no_grad(), inductor_config.patch(freezing=True):
        found = torch.compile(export_program(model, x).module())(x)
        error = float((found - model(x)).abs().max() / model(x).abs().max())
    assert (error < 0.01) == is_near

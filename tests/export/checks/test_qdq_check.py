"""`qdq_violations` names what a runtime will compute in float, and why."""

from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import ArgumentError, ExportError
from nncfx.export import export_onnx, qdq_violations
from nncfx.quantization import quantize_weights
from onnx_files import parsed

MODEL = """
g (uint8[1,1,4,4] x) => (%s y)
<float s = {0.1}, uint8 z = {%d}, int8[1,1,1,1] w = {1}, int8 zw = {0}, float[1,1,1,1] f = {0.1}>
{ a = DequantizeLinear (x, s, z)
  b = DequantizeLinear (w, s, zw)
  c = Conv (a, %s)
  %s }
"""
GOOD = "y = QuantizeLinear (c, s, z)"


@pytest.fixture
def reasons_for(tmp_path: Path) -> Callable[..., list[str]]:
    def check(text: str, target: str = "onnxruntime") -> list[str]:
        model = parsed(text)
        del model.opset_imports["nncfx"]
        ir.save(model, tmp_path / "m.onnx")
        return [one.reason for one in qdq_violations(tmp_path / "m.onnx", target)]

    return check


def test_a_layer_between_quantized_tensors_is_fine(reasons_for: Callable[..., list[str]]) -> None:
    assert reasons_for(MODEL % ("uint8[1,1,4,4]", 0, "b", GOOD)) == []


def test_a_float_weight_is_named(reasons_for: Callable[..., list[str]]) -> None:
    text = MODEL % ("uint8[1,1,4,4]", 0, "f", GOOD)
    assert reasons_for(text) == ["its second operand is not quantized"]


def test_a_result_in_float_is_named(reasons_for: Callable[..., list[str]]) -> None:
    text = MODEL % ("float[1,1,4,4]", 0, "b", "y = Neg (c)")
    assert reasons_for(text) == ["its result is used in float; quantize the output"]


@pytest.mark.parametrize(("zero_point", "count"), [(0, 0), (128, 1)])
def test_a_relu_that_the_grid_does_not_imply_is_in_the_way(
    reasons_for: Callable[..., list[str]], zero_point: int, count: int
) -> None:
    lines = "r = Relu (c)\n y = QuantizeLinear (r, s, z)"
    assert len(reasons_for(MODEL % ("uint8[1,1,4,4]", zero_point, "b", lines))) == count


def test_unsigned_tensors_are_named_for_tensorrt(reasons_for: Callable[..., list[str]]) -> None:
    text = MODEL % ("uint8[1,1,4,4]", 0, "b", GOOD)
    assert reasons_for(text, "tensorrt") == [
        "its first operand is UINT8 with a zero point, and tensorrt wants int8 without one"
    ]


def test_an_unknown_target_and_a_file_that_is_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("no model")
    with pytest.raises(ArgumentError, match="no target with ONNX files 'trt'"):
        qdq_violations(tmp_path / "m.onnx", "trt")
    with pytest.raises(ExportError, match="cannot be read as an ONNX model"):
        qdq_violations(tmp_path / "m.onnx")


def test_an_export_tells_which_layers_with_integer_weights_run_in_float(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # ONNX Runtime has no integer kernel for the transposed one
    upscaling = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 3, 2), nn.Flatten()
    )
    x = torch.randn(1, 3, 8, 8)
    export_onnx(nncfx.quantize(upscaling, [x]), tmp_path / "m.onnx", x)
    told = [one.getMessage() for one in caplog.records if "in float" in one.getMessage()]
    assert len(told) == 1
    assert "onnxruntime computes 1 layers" in told[0]
    assert "no integer kernel for ConvTranspose" in told[0]


def test_weights_alone_in_integers_are_as_asked_and_told_by_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.randn(2, 64)
    model = quantize_weights(nn.Sequential(nn.Linear(64, 32), nn.ReLU()), [x])
    export_onnx(model, tmp_path / "m.onnx", x, target="tensorrt")
    assert "in float" not in caplog.text


def test_float8_that_is_only_simulated_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.randn(2, 8)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    quantized = nncfx.quantize(model, [x], target="tensorrt-fp8")
    export_onnx(quantized, tmp_path / "m.onnx", x, target="tensorrt")
    # the input and what the ReLU returns; weights are folded into constants
    assert "2 tensors are rounded to float8" in caplog.text
    assert "tensorrt computes in float32 what reads them" in caplog.text

"""`qdq_violations` names what a runtime will compute in float, and why."""

from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest

from nncfx.errors import ArgumentError, ExportError
from nncfx.export import qdq_violations

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
def reasons_for(parsed: Callable[[str], ir.Model], tmp_path: Path) -> Callable[..., list[str]]:
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
        "its first operand is UINT8 with a zero point, and tensorrt wants int8 without one",
    ]


def test_an_unknown_target_and_a_file_that_is_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("no model")
    with pytest.raises(ArgumentError, match="no export target 'trt'"):
        qdq_violations(tmp_path / "m.onnx", "trt")
    with pytest.raises(ExportError, match="cannot be read as an ONNX model"):
        qdq_violations(tmp_path / "m.onnx")

"""`integer_kernels` says what ONNX Runtime really ran."""

from pathlib import Path

import onnx_ir as ir
import pytest
import torch

from nncfx.errors import RuntimeFailure
from nncfx.runtimes import integer_kernels

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[1,4] x) => (float[1,4] z)
<float s = {0.1}, uint8 zero = {128}, int8[4,4] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7},
 int8 zw = {0}, float[4,4] f = {1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0,9.0,1.0,2.0,3.0,4.0,5.0,6.0,7.0}>
{ q = QuantizeLinear (x, s, zero)
  a = DequantizeLinear (q, s, zero)
  b = DequantizeLinear (w, s, zw)
  y = MatMul (a, b)
  t = Tanh (y)
  z = MatMul (t, f) }
"""


def test_products_are_sorted_into_integers_and_float(tmp_path: Path) -> None:
    ir.save(ir.from_onnx_text(MODEL), tmp_path / "m.onnx")
    found = integer_kernels(tmp_path / "m.onnx", torch.randn(1, 4))
    assert (len(found.integer), len(found.float), found.conversions) == (1, 1, 1)
    assert found.operators["Tanh"] == 1


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailure, match="There is no file"):
        integer_kernels(tmp_path / "m.onnx", torch.randn(1, 4))

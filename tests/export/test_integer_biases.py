"""Biases of integer layers are int32 in the scale of the products."""

from collections.abc import Callable

import onnx_ir as ir
import pytest

from nncfx.export.graph_edits import constant_of
from nncfx.export.integer_biases import add_integer_biases

Parse = Callable[[str], ir.Model]

MODEL = """
g (uint8[1,2] x) => (float[1,2] y)
<float sx = {0.5}, uint8 zx = {0}, int8[2,2] w = {1, 2, 3, 4}, float[2] sw = {0.1, 0.2},
 int8[2] zw = {0, 0}, float[2] bias = {%s}>
{ a = %s
  b = DequantizeLinear <axis = 0> (w, sw, zw)
  y = Gemm <transB = 1> (a, b, bias) }
"""
INTEGER = "DequantizeLinear (x, sx, zx)"


def test_the_scale_is_that_of_the_products(parsed: Parse) -> None:
    model = parsed(MODEL % ("1.0, -1.02", INTEGER))
    add_integer_biases(model.graph)
    bias = model.graph[-1].inputs[2].producer()
    integers, scale, zero_point = (constant_of(value) for value in bias.inputs)
    assert integers.dtype == "int32"
    assert integers.tolist() == [20, -10]
    assert scale.tolist() == pytest.approx([0.05, 0.1])
    assert not zero_point.any()


@pytest.mark.parametrize(
    ("bias", "operand"), [("1e12, 0.0", INTEGER), ("1.0, 1.0", "Cast <to = 1> (x)")]
)
def test_a_bias_that_does_not_fit_and_one_of_a_float_layer_stay(
    parsed: Parse, bias: str, operand: str
) -> None:
    model = parsed(MODEL % (bias, operand))
    add_integer_biases(model.graph)
    assert model.graph[-1].inputs[2].name == "bias"

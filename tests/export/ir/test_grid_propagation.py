"""Whether values lie on one grid is known past what only moves or joins them."""

import onnx_ir as ir
import pytest

from nncfx.export.ir.grid_propagation import is_movement, is_quantized
from onnx_files import parsed

Q = "nncfx.FakeQuantize <axis = -1, quant_min = 0, quant_max = 255>"


def last(lines: str) -> ir.Value:
    text = f"""
    g (float[1,4,2,2] x) => (float y)
    <float s = {{0.1}}, float t = {{0.05}}, int32 z = {{0}}, float zero = {{0.0}},
     float six = {{6.0}}, float[4] four = {{0.1, 0.2, 0.3, 0.4}}, int32[4] zeros = {{0, 0, 0, 0}},
     int64[8] pads = {{0, 0, 1, 0, 0, 0, 1, 0}}>
    {{ {lines.replace("Q(", Q + " (")}
       y = Neg (v) }}
    """
    (value,) = (node.inputs[0] for node in parsed(text).graph if node.op_type == "Neg")
    assert value is not None
    return value


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("v = Q(x, s, z)", True),
        ("v = Exp (x)", False),
        ("v = Identity (x)", False),
        ("a = Q(x, s, z)\n b = Transpose (a)\n v = MaxPool <kernel_shape = [2, 2]> (b)", True),
        ("a = Q(x, s, z)\n v, i = MaxPool <kernel_shape = [2, 2]> (a)", True),
        ("a = Q(x, s, z)\n b, v = MaxPool <kernel_shape = [2, 2]> (a)", False),
        ("a = Q(x, s, z)\n v = Relu (a)", False),
        ("a = Q(x, s, z)\n v = Pad (a, pads, zero)", True),
        ("a = Q(x, s, z)\n v = Pad (a, pads, six)", False),
        ("a = Q(x, s, z)\n b = Q(x, s, z)\n c = Pad (b, pads)\n v = Concat (a, c)", True),
        ("a = Q(x, s, z)\n b = Q(x, t, z)\n v = Concat (a, b)", False),
        ("a = Q(x, s, z)\n v = Concat (a, x)", False),
        (f"a = {Q.replace('-1', '1')} (x, four, zeros)\n v = Transpose (a)", False),
    ],
)
def test_values_are_on_a_grid_where_all_they_are_made_of_is(lines: str, expected: bool) -> None:
    assert is_quantized(last(lines)) == expected


@pytest.mark.parametrize(("domain", "expected"), [("", True), ("com.example", False)])
def test_operators_of_others_are_no_movements(domain: str, expected: bool) -> None:
    node = ir.node("Transpose", [ir.val("x")], domain=domain)
    assert is_movement(node) == expected

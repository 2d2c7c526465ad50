"""Each target gets the integers that it computes with; exact where that is possible."""

import numpy as np
import onnx_ir as ir
import pytest

from nncfx.errors import ExportError
from nncfx.export.ir.fake_quantize import Grid
from nncfx.export.ir.number_types import activation_grid, int4_type, number_type, weight_grid
from nncfx.targets import TARGETS

CPU, GPU = TARGETS["onnxruntime"], TARGETS["tensorrt"]


def grid(low: int, high: int, zero_point: int = 0) -> Grid:
    return Grid(
        scale=np.float32(0.5), zero_point=np.int64(zero_point), axis=None, low=low, high=high
    )


def values(one: Grid) -> list[float]:
    return [(q - int(one.zero_point)) * float(one.scale) for q in (one.low, one.high)]


def test_signed_activations_become_unsigned_of_the_same_values() -> None:
    found = activation_grid(grid(-128, 127, 5), CPU)
    assert (found.low, found.high, int(found.zero_point)) == (0, 255, 133)
    assert values(found) == values(grid(-128, 127, 5))


def test_unsigned_weights_become_signed_of_the_same_values() -> None:
    found = weight_grid(grid(0, 255, 128), CPU)
    assert (found.low, found.high, int(found.zero_point)) == (-128, 127, 0)


def test_unsigned_weights_of_seven_bits_become_signed_so_that_sums_of_two_products_fit() -> None:
    found = weight_grid(grid(0, 127, 20), CPU)
    assert (found.low, found.high, int(found.zero_point)) == (-64, 63, -44)
    assert values(found) == values(grid(0, 127, 20))
    assert 2 * 255 * max(-found.low, found.high) < 2**15


def test_a_symmetric_target_gets_a_grid_that_covers() -> None:
    found = activation_grid(grid(0, 255, 0), GPU)
    assert (found.low, found.high, int(found.zero_point)) == (-127, 127, 0)
    assert values(found)[1] == pytest.approx(255 * 0.5)


def test_what_is_symmetric_stays_for_a_symmetric_target() -> None:
    one = grid(-128, 127)
    assert activation_grid(one, GPU) is one
    assert weight_grid(one, GPU) is one


@pytest.mark.parametrize(
    ("low", "high", "signed_first", "expected"),
    [
        (0, 127, False, "UINT8"),
        (0, 127, True, "INT8"),
        (-8, 7, False, "INT8"),
        (0, 255, True, "UINT8"),
        (-512, 511, True, "INT16"),
        (0, 65535, True, "UINT16"),
    ],
)
def test_the_narrowest_type_is_taken(
    low: int, high: int, signed_first: bool, expected: str
) -> None:
    assert number_type(grid(low, high), signed_first=signed_first) is ir.DataType[expected]


def test_more_than_16_bits_are_refused() -> None:
    with pytest.raises(ExportError, match="0 to 65536 needs more than 16 bits"):
        number_type(grid(0, 65536), signed_first=True)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-8, 7, ir.DataType.INT4), (0, 15, ir.DataType.UINT4), (0, 16, None)],
)
def test_int4_types(low: int, high: int, expected: ir.DataType | None) -> None:
    assert int4_type(grid(low, high)) is expected

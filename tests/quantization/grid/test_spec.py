"""Quantizer specs: valid by construction."""

from typing import Any

import pytest

from nncfx.errors import ArgumentError
from nncfx.quantization import QuantizerSpec


@pytest.mark.parametrize(
    ("changes", "low", "high", "dtype"),
    [
        ({}, -128, 127, "int8"),
        ({"signed": False}, 0, 255, "uint8"),
        ({"narrow": True}, -127, 127, "int8"),
        ({"bits": 4}, -8, 7, "int4"),
        ({"bits": 2, "signed": False}, 0, 3, "uint2"),
        ({"bits": 5}, -16, 15, "int8"),
        ({"bits": 16}, -32768, 32767, "int16"),
        ({"half_range": True}, -64, 63, "int8"),
        ({"half_range": True, "narrow": True}, -63, 63, "int8"),
    ],
)
def test_the_ends_of_a_grid_are(changes: dict[str, Any], low: int, high: int, dtype: str) -> None:
    spec = QuantizerSpec(**changes)
    assert (spec.quant_min, spec.quant_max, spec.dtype) == (low, high, dtype)


@pytest.mark.parametrize("bits", [0, 1, 17])
def test_bits_that_no_grid_has_are_refused(bits: int) -> None:
    with pytest.raises(ArgumentError, match=f"bits is {bits}"):
        QuantizerSpec(bits=bits)


def test_a_float8_of_other_than_8_bits_is_refused() -> None:
    with pytest.raises(ArgumentError, match="float8_e4m3"):
        QuantizerSpec(mode="float8_e4m3", bits=4)


def test_a_group_beside_an_axis_is_refused() -> None:
    with pytest.raises(ArgumentError, match="group is 16 with axis 0"):
        QuantizerSpec(group=16, axis=0)

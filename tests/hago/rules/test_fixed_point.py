"""Rescaling by a multiplier and a shift."""

from fractions import Fraction

import torch
from hypothesis import given
from hypothesis import strategies as st

from nncfx.hago.rules.fixed_point import (
    FixedPoint,
    fixed_point,
    rescaled_floats,
    rescaled_integers,
    wrapped,
)

SUMS = st.integers(-(2**31) + 1, 2**31 - 1)
FACTORS = st.floats(2**-40, 2**8)


def made(factor: float) -> FixedPoint:
    return fixed_point(torch.tensor(factor, dtype=torch.float64))


@given(SUMS, FACTORS)
def test_integers_are_rounded_exactly_half_to_even(value: float, factor: float) -> None:
    fixed = made(factor)
    exact = Fraction(value) * int(fixed.multiplier) * Fraction(2) ** -int(fixed.shift)
    # Python rounds fractions half to even, exactly
    assert int(rescaled_integers(torch.tensor(value), fixed)) == round(exact)


@given(SUMS, FACTORS)
def test_floats_give_what_integers_give(value: float, factor: float) -> None:
    fixed = made(factor)
    floats = rescaled_floats(torch.tensor(float(value), dtype=torch.float64), fixed)
    assert int(floats) == int(rescaled_integers(torch.tensor(value), fixed))


@given(FACTORS)
def test_the_factor_is_met_within_two_to_the_minus_22(factor: float) -> None:
    fixed = made(factor)
    found = Fraction(int(fixed.multiplier)) * Fraction(2) ** -int(fixed.shift)
    # a shift ends at 62; at the smallest factor drawn it is 22 + 40
    assert abs(found / Fraction(factor) - 1) <= Fraction(1, 2**22)


def test_powers_of_two_are_exact() -> None:
    for exponent in range(-20, 9):
        fixed = made(2.0**exponent)
        assert int(fixed.multiplier) * 2.0 ** -int(fixed.shift) == 2.0**exponent


def test_a_factor_per_channel_rescales_each_channel() -> None:
    fixed = fixed_point(torch.tensor([[0.5], [2.0]], dtype=torch.float64))
    values = torch.tensor([[3, 5], [3, 5]])
    # 1.5 and 2.5 both go to 2
    assert rescaled_integers(values, fixed).tolist() == [[2, 2], [6, 10]]


@given(st.integers(-(2**40), 2**40))
def test_wrapping_is_the_cast_of_a_register(value: float) -> None:
    cast = int(torch.tensor(value).to(torch.int16))
    assert int(wrapped(torch.tensor(float(value), dtype=torch.float64), 16)) == cast
    assert int(wrapped(torch.tensor(value), 16)) == cast


@given(st.floats(-(2.0**40), 2.0**40, width=32).map(round), st.sampled_from([8, 16, 32]))
def test_wrapping_loses_nothing_in_float32(value: int, bits: int) -> None:
    whole = torch.tensor(float(value), dtype=torch.float32)
    half = 2 ** (bits - 1)
    # Python's integers have no width
    assert int(wrapped(whole, bits)) == (int(whole) + half) % 2**bits - half


def test_a_register_of_32_bits_keeps_what_fits_in_float32() -> None:
    largest = 2.0**31 - 128  # of those float32 has
    values = torch.tensor([1.0, 5.0, 1000.0, -3.0, largest, -largest, 2.0**31, -(2.0**31)])
    assert wrapped(values, 32).tolist() == [1, 5, 1000, -3, largest, -largest, -(2**31), -(2**31)]

"""The scale of a level."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.search.resolution import Resolution, remaining_decades, stretch

levels = st.floats(0, 1)
tolerances = st.floats(0.001, 0.25)


@given(level=levels, tolerance=tolerances)
def test_cells_and_level_are_inverse(level: float, tolerance: float) -> None:
    scale = Resolution(tolerance=tolerance)
    assert scale.level(scale.cells(level)) == pytest.approx(level, abs=1e-12)


@given(low=levels, tolerance=tolerances)
def test_one_cell_is_at_most_the_tolerance_and_a_fifth_of_it_above_09(
    low: float, tolerance: float
) -> None:
    scale = Resolution(tolerance=tolerance)
    high = scale.level(scale.cells(low) + 1)
    allowed = tolerance / 5 if high > 0.9 else tolerance
    assert high - low <= allowed + 1e-12


def test_the_whole_range_has_144_cells_of_001() -> None:
    # 89 cells of 0.01 up to 0.89, then 0.11 / 0.002 = 55
    assert Resolution(tolerance=0.01).cells(1.0) == pytest.approx(144)


@given(a=levels, b=levels)
def test_stretch_keeps_the_order(a: float, b: float) -> None:
    assert (a <= b) == (stretch(a) <= stretch(b))


def test_level_1_counts_as_three_decades() -> None:
    assert remaining_decades(1.0) == pytest.approx(3)
    assert stretch(0) == 0
    assert stretch(1) == pytest.approx(2)

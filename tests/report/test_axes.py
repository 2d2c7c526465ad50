"""Ticks are round, scales are linear, labels do not overlap and move as little as they can."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.report.axes import Scale, padded, spread, ticks

places = st.floats(min_value=-50, max_value=650)


def test_a_scale_maps_its_ends_to_its_ends_upside_down_too() -> None:
    scale = Scale(low=0.0, high=2.0, start=300, end=100)
    assert [scale(0.0), scale(1.0), scale(2.0)] == [300, 200, 100]
    assert [scale.holds(2.0), scale.holds(2.1)] == [True, False]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (5300, 15_900, [6000, 8000, 10_000, 12_000, 14_000]),
        (0.861, 0.937, [0.88, 0.9, 0.92]),
        (-0.02, 0.11, [0.0, 0.025, 0.05, 0.075, 0.1]),
    ],
)
def test_ticks_are_round_numbers_inside(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_lie_inside_and_are_few(low: float, width: float) -> None:
    found = ticks(low, low + width)
    slack = width * 1e-6
    assert all(low - slack <= tick <= low + width + slack for tick in found)
    assert 2 <= len(found) <= 7


def test_a_range_leaves_out_what_is_not_finite() -> None:
    assert padded([math.nan, 0.0, 1.0, math.inf], share=0.5) == (-0.5, 1.5)


@pytest.mark.parametrize(
    ("values", "expected"), [([], (0, 1)), ([4.0, 4.0], (2.0, 6.0)), ([0.0], (-0.5, 0.5))]
)
def test_a_range_is_never_empty(values: list[float], expected: tuple[float, float]) -> None:
    assert padded(values) == expected


def test_labels_that_fit_do_not_move() -> None:
    assert spread([30.0, 10.0, 50.0], gap=5, low=0, high=100) == [30.0, 10.0, 50.0]


def test_three_labels_on_one_place_stand_about_it() -> None:
    assert spread([50.0, 50.0, 50.0], gap=10, low=0, high=100) == [40.0, 50.0, 60.0]


def test_labels_at_the_edge_move_inward() -> None:
    assert spread([99.0, 100.0], gap=10, low=0, high=100) == [90.0, 100.0]


def test_the_gap_shrinks_when_there_is_no_room() -> None:
    assert spread([0.0] * 5, gap=100, low=0, high=100) == [0.0, 25.0, 50.0, 75.0, 100.0]


@given(st.lists(places, max_size=30), st.floats(1, 25))
def test_labels_keep_their_gap_their_order_and_their_bounds(
    wanted: list[float], gap: float
) -> None:
    found = spread(wanted, gap=gap, low=0, high=600)
    needed = min(gap, 600 / max(len(wanted) - 1, 1))
    ranked = sorted(found)
    assert all(b - a >= needed - 1e-6 for a, b in itertools.pairwise(ranked))
    assert all(-1e-6 <= place <= 600 + 1e-6 for place in found)
    for i, first in enumerate(wanted):
        for j, second in enumerate(wanted):
            assert not (first < second and found[i] > found[j])


@given(st.lists(places, min_size=2, max_size=4), st.floats(5, 100), st.integers(0, 10**6))
def test_no_other_admissible_places_are_nearer(wanted: list[float], gap: float, seed: int) -> None:
    found = spread(wanted, gap=gap, low=0, high=600)

    def cost(placed: list[float]) -> float:
        return sum((a - b) ** 2 for a, b in zip(placed, wanted, strict=True))

    # any point between the answer and another admissible one is admissible: the set is convex
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    other = [0.0] * len(wanted)
    start = (seed % 1000) / 1000 * (600 - gap * (len(wanted) - 1))
    for rank, index in enumerate(order):
        other[index] = start + rank * gap
    assert cost(found) <= cost(other) + 1e-6
    halfway = [(a + b) / 2 for a, b in zip(found, other, strict=True)]
    assert cost(found) <= cost(halfway) + 1e-6

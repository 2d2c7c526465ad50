"""The monotone bracket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.search import Observation
from nncfx.search.one_level.bracket import Bracket
from nncfx.search.resolution import Resolution

SCALE = Resolution(tolerance=0.01)


@pytest.mark.parametrize(
    ("points", "low", "high"),
    [
        ([], 0.0, 0.8),  # nothing known leaves everything
        ([(0.5, 0.9)], 0.5, 0.8),  # the threshold itself is feasible
        ([(0.2, 0.95), (0.5, None)], 0.2, 0.5),  # a failed level is infeasible
        ([(0.2, 0.95), (0.5, 0.8), (0.6, 0.91)], 0.2, 0.5),  # above an infeasible one is noise
    ],
)
def test_the_bracket_is_of_the_last_feasible_and_the_first_infeasible_level(
    points: list[tuple[float, float | None]], low: float, high: float
) -> None:
    seen = [Observation(level=level, value=value) for level, value in points]
    assert Bracket.of(seen, threshold=0.9, upper=0.8) == Bracket(low=low, high=high)


@given(low=st.floats(0, 1), high=st.floats(0, 1), go_up=st.lists(st.booleans(), min_size=9))
def test_bisection_closes_in_as_many_halvings_as_announced(
    low: float, high: float, go_up: list[bool]
) -> None:
    part = Bracket(low=min(low, high), high=max(low, high))
    for up in go_up[: part.halvings(SCALE)]:
        middle = SCALE.level((SCALE.cells(part.low) + SCALE.cells(part.high)) / 2)
        part = Bracket(low=middle, high=part.high) if up else Bracket(low=part.low, high=middle)
    assert part.is_closed(SCALE)


def test_a_width_of_a_power_of_two_takes_no_halving_more() -> None:
    assert [Bracket(low=0.1, high=0.1 + n / 100).halvings(SCALE) for n in (1, 2, 4, 64)] == [
        *(0, 1, 2, 6)
    ]
    assert Bracket(low=0.1, high=0.165).halvings(SCALE) == 3


def test_the_middle_has_as_many_cells_below_as_above() -> None:
    """From 0.87 to 0.91 there are two coarse cells, up to 0.89, and ten fine ones."""
    assert Bracket(low=0.2, high=0.5).middle(SCALE) == pytest.approx(0.35)
    assert Bracket(low=0.87, high=0.91).middle(SCALE) == pytest.approx(0.898)

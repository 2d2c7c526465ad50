"""The competitors."""

from hypothesis import given
from hypothesis import strategies as st

from nncfx.search import bisect_level, condensa_literal


@given(crossing=st.floats(0.01, 0.999))
def test_bisection_needs_eight_evaluations_for_any_crossing(crossing: float) -> None:
    found = bisect_level(lambda level: crossing - level, 0.0)
    allowed = 0.002 if crossing > 0.9 else 0.01
    # a bracket is closed within 1e-6 cells, 1e-8 of the level
    assert 0 <= crossing - found.level <= allowed + 1e-7
    assert len(found.evaluations) <= 8


def test_the_published_algorithm_repeats_with_its_seed_and_stops() -> None:
    first = condensa_literal(lambda level: 0.93 - 0.16 * level**3, 0.91, seed=3)
    again = condensa_literal(lambda level: 0.93 - 0.16 * level**3, 0.91, seed=3)
    assert first == again
    assert first.level == first.evaluations[-1].level
    assert len(first.evaluations) <= 25


def test_the_published_algorithm_can_miss_the_crossing() -> None:
    """With noise 0.1 it stops early; a search to 0.01 must not end 0.03 away."""
    found = condensa_literal(lambda level: 0.93 - 0.16 * level**3, 0.91)
    assert abs(found.level - 0.5) > 0.03

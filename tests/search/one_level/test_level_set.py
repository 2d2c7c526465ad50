"""The proposals of stage 1."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nncfx.search import Observation, SearchSettings
from nncfx.search.one_level.bracket import Bracket
from nncfx.search.one_level.level_set import next_level

SETTINGS = SearchSettings()


@settings(max_examples=6, deadline=None)
@given(values=st.lists(st.none() | st.floats(-1, 2), min_size=10, max_size=10))
def test_any_answers_whatever_close_the_bracket_within_nine_evaluations(
    values: list[float | None],
) -> None:
    """Plateaus, staircases, noise and failures: the probes stay inside and the end is safe."""
    seen = [Observation(level=0.0, value=0.93)]
    for value in values:
        level = next_level(seen, 0.91, SETTINGS, free=1)
        if level is None:
            break
        bracket = Bracket.of(seen, threshold=0.91, upper=1.0)
        assert bracket.low < level < bracket.high
        seen.append(Observation(level=level, value=value))
    bracket = Bracket.of(seen, threshold=0.91, upper=1.0)
    assert bracket.is_closed(SETTINGS.resolution)
    assert len(seen) - 1 <= 9


def test_a_proposal_is_the_same_for_the_same_observations() -> None:
    seen = [
        Observation(level=0.0, value=0.93),
        Observation(level=0.85, value=0.4),
        Observation(level=0.4, value=0.92),
    ]
    assert next_level(seen, 0.91, SETTINGS) == next_level(seen, 0.91, SETTINGS)


def test_the_evaluations_allowed_are_not_exceeded() -> None:
    seen = [Observation(level=0.85, value=0.1), Observation(level=0.4, value=0.95)]
    assert next_level(seen, 0.9, SearchSettings(max_evaluations=2)) is None


def test_the_last_evaluation_checks_level_0_when_nothing_was_feasible() -> None:
    seen = [Observation(level=0.85, value=0.1)]
    assert next_level(seen, 0.9, SearchSettings(max_evaluations=2)) == 0.0


def test_an_open_end_is_approached_by_decades() -> None:
    seen = [Observation(level=0.0, value=0.93), Observation(level=0.9, value=0.93)]
    level = next_level(seen, 0.91, SETTINGS, free=1)
    # half way between 1 decade (0.9) and 3 (the end): 2 decades keep a hundredth
    assert level == pytest.approx(0.99, abs=0.002)


def test_a_failure_without_a_metric_is_followed_by_halving() -> None:
    seen = [Observation(level=0.0, value=0.93), Observation(level=0.85, value=None)]
    assert next_level(seen, 0.91, SETTINGS, free=1) == pytest.approx(0.425)


def test_a_steep_curve_is_resolved_below_the_tolerance() -> None:
    seen = [
        Observation(level=0.0, value=0.93),
        Observation(level=0.40, value=0.93),
        Observation(level=0.50, value=0.924),
        Observation(level=0.51, value=0.89),
        Observation(level=0.60, value=0.5),
    ]
    level = next_level(seen, 0.91, SETTINGS, free=1)
    assert level is not None
    assert 0.50 < level < 0.51


def test_noise_on_a_flat_curve_is_not_chased() -> None:
    """The metric falls by 0.0008 over the bracket, and noise of 0.003 lies on both of its ends."""
    curve = {level: 0.93 - 0.08 * level**2 for level in (0.0, 0.2, 0.4, 0.49, 0.5, 0.6, 0.8)}
    noise = {0.49: 0.003, 0.5: -0.003}
    seen = [
        Observation(level=level, value=value + noise.get(level, 0.0))
        for level, value in curve.items()
    ]
    assert next_level(seen, 0.91, SETTINGS, free=1) is None


def test_a_metric_at_the_threshold_is_feasible() -> None:
    """The threshold is the least metric that is allowed: what equals it is no failure."""
    seen = [Observation(level=0.0, value=0.93), Observation(level=0.9, value=0.91)]
    level = next_level(seen, 0.91, SETTINGS, free=1)
    assert level is not None
    assert level > 0.9


def test_a_search_ends_where_the_metric_equals_the_threshold() -> None:
    """Nothing is to be gained by a probe in the last cell: its feasible end is at the budget."""
    seen = [
        Observation(level=0.0, value=0.93),
        Observation(level=0.50, value=0.91),
        Observation(level=0.51, value=0.5),
    ]
    assert next_level(seen, 0.91, SETTINGS, free=1) is None


@pytest.mark.parametrize("value", [0.30, 0.60, 0.80, 0.88, 0.905])
def test_a_probe_in_two_cells_leaves_at_most_one_on_each_side(value: float) -> None:
    """Whichever way it turns out, the bracket is closed."""
    seen = [
        Observation(level=0.0, value=0.93),
        Observation(level=0.50, value=0.92),
        Observation(level=0.52, value=value),
    ]
    level = next_level(seen, 0.91, SETTINGS, free=1)
    assert level == pytest.approx(0.51)

"""The proposals of stage 1."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nncfx.search import Observation, SearchSettings
from nncfx.search.one_level.bracket import Bracket
from nncfx.search.one_level.level_set import next_level

SETTINGS = SearchSettings()


def observed(*pairs: tuple[float, float | None]) -> list[Observation]:
    return [Observation(level=level, value=value) for level, value in pairs]


DENSE = (0.0, 0.93)
STATES = {
    "open": observed(DENSE, (0.85, 0.92)),
    "two": observed(DENSE, (0.85, 0.4)),
    "wide": observed(DENSE, (0.85, 0.4), (0.4, 0.92)),
    "near the lower end": observed(DENSE, (0.2, 0.911), (0.9, 0.6)),
    "near the upper end": observed(DENSE, (0.2, 0.929), (0.9, 0.909)),
    "two cells": observed(DENSE, (0.5, 0.92), (0.52, 0.908)),
    "steep": observed(DENSE, (0.4, 0.93), (0.5, 0.924), (0.51, 0.89), (0.6, 0.5)),
    "steep, failed": observed(DENSE, (0.4, 0.93), (0.5, 0.924), (0.51, None), (0.6, 0.5)),
    "flat": observed(DENSE, (0.4, 0.92), (0.5, 0.9113), (0.51, 0.9088), (0.6, 0.9)),
    "gentle": observed(DENSE, (0.3, 0.925), (0.5, 0.9141), (0.51, 0.9089), (0.6, 0.88)),
    "failed": observed(DENSE, (0.85, None), (0.4, 0.92)),
    "no slack": observed((0.0, 0.91), (0.85, 0.4), (0.4, 0.91)),
    "dense unknown": observed((0.85, 0.4), (0.4, 0.915)),
    "nothing feasible": observed((0.85, 0.4), (0.4, 0.89)),
}


def asked(seen: list[Observation], scale: float = 1.0, shift: float = 0.0) -> float | None:
    """Return what is asked next if the metric is in another unit."""
    moved = [
        Observation(level=s.level, value=None if s.value is None else scale * s.value + shift)
        for s in seen
    ]
    free = sum(s.level == 0 for s in seen)
    return next_level(moved, scale * 0.91 + shift, SETTINGS, free=free)


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
    assert asked(STATES["wide"]) == asked(STATES["wide"])


def test_the_evaluations_allowed_are_not_exceeded() -> None:
    seen = observed((0.85, 0.1), (0.4, 0.95))
    assert next_level(seen, 0.9, SearchSettings(max_evaluations=2)) is None


def test_the_last_evaluation_checks_level_0_when_nothing_was_feasible() -> None:
    assert next_level(observed((0.85, 0.1)), 0.9, SearchSettings(max_evaluations=2)) == 0.0


def test_a_failure_without_a_metric_is_followed_by_halving() -> None:
    assert asked(observed(DENSE, (0.85, None))) == pytest.approx(0.425)


def test_noise_on_a_flat_curve_is_not_chased() -> None:
    """The metric falls by 0.0008 over the bracket, and noise of 0.003 lies on both of its ends."""
    curve = {level: 0.93 - 0.08 * level**2 for level in (0.0, 0.2, 0.4, 0.49, 0.5, 0.6, 0.8)}
    noise = {0.49: 0.003, 0.5: -0.003}
    seen = observed(*((level, value + noise.get(level, 0.0)) for level, value in curve.items()))
    assert asked(seen) is None


def test_a_metric_at_the_threshold_is_feasible() -> None:
    """The threshold is the least metric that is allowed: what equals it is no failure."""
    level = asked(observed(DENSE, (0.9, 0.91)))
    assert level > 0.9


def test_a_search_ends_where_the_metric_equals_the_threshold() -> None:
    """Nothing is to be gained by a probe in the last cell: its feasible end is at the budget."""
    assert asked(observed(DENSE, (0.50, 0.91), (0.51, 0.5))) is None


@pytest.mark.parametrize("value", [0.30, 0.60, 0.80, 0.88, 0.905])
def test_a_probe_in_two_cells_leaves_at_most_one_on_each_side(value: float) -> None:
    """Whichever way it turns out, the bracket is closed."""
    level = asked(observed(DENSE, (0.50, 0.92), (0.52, value)))
    assert level == pytest.approx(0.51)


@pytest.mark.parametrize("name", STATES)
def test_the_unit_of_the_metric_moves_no_probe(name: str) -> None:
    """Powers of two change no bit of a ratio."""
    expected = asked(STATES[name])
    assert [asked(STATES[name], scale) for scale in (64.0, 1 / 1024)] == [expected] * 2


@pytest.mark.parametrize("name", [name for name in STATES if STATES[name][0].level == 0])
def test_the_zero_of_the_metric_moves_no_probe(name: str) -> None:
    """Where the dense metric is known: its guess is a part of the threshold."""
    expected = asked(STATES[name])
    for shift in (2.0, -2.0):
        level = asked(STATES[name], 1.0, shift)
        assert level == (None if expected is None else pytest.approx(expected, abs=1e-8))


@pytest.mark.parametrize("name", STATES)
def test_the_sign_of_the_threshold_moves_no_probe(name: str) -> None:
    """A loss may be negated to be a metric; so the guess for a dense model is above it, too."""
    expected = asked(STATES[name])
    level = asked(STATES[name], 1.0, -2 * 0.91)
    assert level == (None if expected is None else pytest.approx(expected, abs=1e-8))


@pytest.mark.parametrize(("best", "guess"), [(0.915, 1.02 * 0.91), (0.95, 0.95)])
def test_an_unknown_dense_model_is_taken_for_the_best_one_and_2_percent_better(
    best: float, guess: float
) -> None:
    seen = observed((0.85, 0.4), (0.3, best), (0.5, 0.912))
    known = [Observation(level=0.0, value=guess), *seen]
    assert asked(seen) == next_level(known, 0.91, SETTINGS, free=1)


@pytest.mark.parametrize("low", [0.3, 0.9, 0.99])
def test_an_open_end_is_approached_by_the_geometric_mean_of_what_remains(low: float) -> None:
    """What remains is counted as 1 - 0.999 level, so that level 1 keeps a thousandth."""
    level = asked(observed(DENSE, (low, 0.93)))
    assert (1 - 0.999 * level) ** 2 == pytest.approx((1 - 0.999 * low) * 0.001, rel=1e-6)


def test_an_open_end_is_approached_up_to_half_a_cell() -> None:
    """A cell above 0.9 is a fifth of the tolerance."""
    assert asked(observed(DENSE, (0.9975, 0.93))) == pytest.approx(0.999)


@pytest.mark.parametrize("name", ["steep", "steep, failed"])
def test_a_steep_curve_is_not_resolved_beyond_what_bisection_may_take(name: str) -> None:
    """Seven halvings close 145 cells, and one evaluation more is risked."""
    seen = STATES[name]
    late = seen + observed(*((0.6 + n / 100, 0.3) for n in range(1, 4)))
    assert asked(seen) is not None
    assert asked([*late, *observed((0.7, 0.2))]) is not None
    assert asked([*late, *observed((0.7, 0.2), (0.8, 0.2))]) is None


def test_a_steep_curve_is_resolved_at_the_crossing() -> None:
    """In the cell from 0.50 to 0.51, which a lower threshold is crossed later in."""
    levels = [
        next_level(STATES["steep"], threshold, SETTINGS, free=1)
        for threshold in (0.92, 0.915, 0.91, 0.905, 0.9)
    ]
    assert None not in levels
    assert 0.501 < levels[0] < levels[1] < levels[2] < levels[3] < levels[4] < 0.509


@pytest.mark.parametrize("above", [0.905, 0.9, 0.88])
def test_the_further_the_metric_is_from_the_threshold_the_further_is_the_probe(
    above: float,
) -> None:
    """The bracket reaches from 0.5 to 0.6, and its lower end is the nearer one at first."""
    levels = [
        asked(observed(DENSE, (0.5, value), (0.6, above)))
        for value in (0.911, 0.912, 0.915, 0.92, 0.925)
    ]
    assert levels == sorted(levels)
    assert 0.5 < levels[0] < 0.52 < levels[2] < levels[4] < 0.6


@pytest.mark.parametrize(("value", "above"), [(0.92, 0.9), (0.915, 0.9), (0.92, 0.905)])
def test_a_bracket_of_little_more_than_a_cell_is_probed_at_the_crossing(
    value: float, above: float
) -> None:
    """Any probe that leaves a cell on both sides would close it: from 0.502 to 0.51 here."""
    level = asked(observed(DENSE, (0.5, value), (0.512, above)))
    assert 0.502 < level < 0.5095


def test_the_first_probe_keeps_about_a_seventh() -> None:
    assert asked(observed(DENSE)) == asked([]) == pytest.approx(0.85, abs=0.001)


def test_a_cell_whose_metric_is_the_threshold_itself_is_the_end() -> None:
    assert asked(observed((0.0, 0.91), (0.5, 0.91), (0.51, None))) is None


def test_a_bracket_of_one_cell_is_halved_where_only_failures_bound_it() -> None:
    seen = observed(DENSE, (0.5, 0.92), (0.51, None))
    assert asked(seen) == pytest.approx(0.505)


def test_nothing_is_asked_once_the_dense_model_itself_is_infeasible() -> None:
    assert next_level(observed((0.85, 0.1), (0.0, 0.5)), 0.91, SETTINGS) is None


def test_level_0_is_measured_only_when_nothing_else_is_left() -> None:
    level = asked(observed((0.85, 0.1)))
    assert 0 < level < 0.85
    assert asked(observed((0.85, 0.1), (0.005, 0.2))) == 0.0


def test_levels_are_short_enough_to_be_written_down() -> None:
    levels = [asked(seen) for seen in STATES.values()]
    assert all(level is None or level == round(level, 10) for level in levels)


SHAPES: list[tuple[float, Callable[[float], float]]] = [
    *((knee, lambda level: level) for knee in (0.16, 0.5, 0.7, 0.99)),
    *((knee, lambda level: level**4) for knee in (0.3, 0.7, 0.95)),
    *((knee, lambda level: 1 / (1 - level) - 1) for knee in (0.3, 0.9, 0.97)),
    *((knee, lambda level: math.expm1(60 * level)) for knee in (0.3, 0.95)),
]


def test_crossings_are_found_with_a_quarter_less_evaluations_than_by_bisection() -> None:
    """Bisection takes 8 for each; benchmarks/search_efficiency.py tells of many more curves."""
    used = []
    for knee, loss in SHAPES:
        seen = observed(DENSE)
        while (level := next_level(seen, 0.91, SETTINGS, free=1)) is not None:
            value = 0.93 - 0.02 * loss(level) / loss(knee)
            seen.append(Observation(level=level, value=value))
        bracket = Bracket.of(seen, threshold=0.91, upper=1.0)
        assert bracket.low <= knee < bracket.high
        assert bracket.is_closed(SETTINGS.resolution)
        used.append(len(seen) - 1)
    assert sum(used) <= 8 * len(SHAPES) * 0.75, used

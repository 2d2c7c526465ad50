"""Several levels at once: cuts that close the bracket sooner."""

import itertools

import pytest

from nncfx.search import Observation, SearchSettings
from nncfx.search.one_level.bracket import Bracket
from nncfx.search.one_level.level_set import next_level
from nncfx.search.one_level.simultaneous import next_levels

SETTINGS = SearchSettings(max_evaluations=20)
DENSE = Observation(level=0.0, value=0.93)


def seen(*levels: float, knee: float = 0.6) -> list[Observation]:
    found = [Observation(level=x, value=0.93 - 0.02 * (x / knee) ** 4) for x in levels]
    return [DENSE, *found]


def rounds(knee: float, workers: int, settings: SearchSettings = SETTINGS) -> tuple[int, float]:
    """Return how many rounds a search takes, and the level that it finds."""
    known = seen(knee=knee)
    for count in itertools.count():
        levels = next_levels(known, 0.91, settings, free=1, count=workers)
        if not levels:
            return count, Bracket.of(known, threshold=0.91, upper=1.0).low
        assert len(set(levels)) == len(levels) <= workers
        assert all(0 < level < 1 for level in levels)
        known += seen(*levels, knee=knee)[1:]
    raise AssertionError


def test_one_level_is_what_a_search_alone_asks_for() -> None:
    known = seen(0.85, 0.4)
    assert next_levels(known, 0.91, SETTINGS, free=1) == [
        next_level(known, 0.91, SETTINGS, free=1)
    ]


@pytest.mark.parametrize("knee", [0.3, 0.7, 0.95])
def test_more_workers_take_no_more_rounds_and_find_as_close(knee: float) -> None:
    alone, _ = rounds(knee, 1)
    for workers in (2, 4):
        count, level = rounds(knee, workers)
        assert count <= alone
        assert knee - 0.01 <= level <= knee


@pytest.mark.parametrize(("knee", "workers"), [(0.07, 2), (0.5, 2), (0.9, 3), (0.985, 4)])
def test_even_a_step_is_found_closely(knee: float, workers: int) -> None:
    known = [DENSE]
    while levels := next_levels(known, 0.91, SETTINGS, free=1, count=workers):
        known += [Observation(level=x, value=0.93 if x <= knee else 0.1) for x in levels]
    bracket = Bracket.of(known, threshold=0.91, upper=1.0)
    assert bracket.low <= knee < bracket.high
    assert bracket.is_closed(SETTINGS.resolution)
    assert len(known) - 1 <= SETTINGS.max_evaluations


@pytest.mark.parametrize("knee", [0.02, 0.31, 0.397, 0.5, 0.68, 0.93, 0.998])
def test_ten_evaluations_close_the_bracket_of_any_curve_with_two_workers(knee: float) -> None:
    known, few = [DENSE], SearchSettings(max_evaluations=10)
    while levels := next_levels(known, 0.91, few, free=1, count=2):
        known += [Observation(level=x, value=0.93 if x <= knee else 0.1) for x in levels]
    bracket = Bracket.of(known, threshold=0.91, upper=1.0)
    assert bracket.low <= knee < bracket.high
    assert bracket.is_closed(few.resolution)
    assert len(known) - 1 <= 10


def test_cuts_close_the_bracket_where_the_metric_shows_that_no_cliff_is_near() -> None:
    few = SearchSettings(max_evaluations=10)
    levels = (0.36, 0.72, 0.7198, 0.9424)
    gentle = [Observation(level=x, value=0.93 - 0.02 * (x / 0.7) ** 6) for x in levels]
    low, high = next_levels([DENSE, *gentle], 0.91, few, free=1, count=2)
    assert low < 0.7 < high <= low + 0.01
    cliff = [Observation(level=x, value=0.93 if x <= 0.7 else 0.5) for x in levels]
    low, high = next_levels([DENSE, *cliff], 0.91, few, free=1, count=2)
    assert max(low - 0.36, high - low, 0.7198 - high) <= 0.1601  # sixteen cells: four bisections


def test_two_workers_save_three_tenths_of_the_rounds_within_ten_evaluations() -> None:
    knees, few = (0.16, 0.3, 0.5, 0.7, 0.9, 0.97), SearchSettings(max_evaluations=10)
    alone = sum(rounds(knee, 1, few)[0] for knee in knees)
    beside = sum(rounds(knee, 2, few)[0] for knee in knees)
    assert beside <= 0.7 * alone


def test_what_is_under_way_is_not_asked_for_again() -> None:
    both = next_levels([DENSE], 0.91, SETTINGS, free=1, count=2)
    for pending in both:
        (other,) = next_levels([DENSE], 0.91, SETTINGS, free=1, pending=[pending], count=1)
        assert other in both
        assert other != pending


def test_evaluations_under_way_count() -> None:
    few = SearchSettings(max_evaluations=3)
    assert 1 <= len(next_levels([DENSE], 0.91, few, free=1, count=8)) <= 3
    assert not next_levels(seen(0.5), 0.91, few, free=1, pending=[0.7, 0.8], count=2)


def test_without_a_feasible_level_the_dense_model_is_measured_once() -> None:
    bad = [Observation(level=0.01, value=0.5)]
    assert next_levels(bad, 0.91, SETTINGS, free=0, count=2) == [0.0]
    assert not next_levels(bad, 0.91, SETTINGS, free=0, pending=[0.0], count=1)

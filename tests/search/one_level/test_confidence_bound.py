"""The proposals of stage 2."""

from nncfx.search import Observation, SearchSettings
from nncfx.search.one_level.confidence_bound import next_objective_level

SETTINGS = SearchSettings()


def test_no_feasible_level_leaves_nothing_to_propose() -> None:
    seen = [Observation(level=0.0, value=1.0)]
    assert next_objective_level(seen, 0.0, SETTINGS, maximize=True) is None


def test_without_observations_the_upper_end_comes_first() -> None:
    assert next_objective_level([], 0.7, SETTINGS, maximize=True) == 0.7


def test_the_neighbourhood_of_a_failed_level_is_left_out() -> None:
    failed = [Observation(level=0.7, value=None)]
    level = next_objective_level(failed, 0.7, SETTINGS, maximize=True)
    assert 0.68 < level < 0.69


def test_maximising_and_minimising_the_negative_are_the_same() -> None:
    seen = [Observation(level=x, value=y) for x, y in [(0.0, 1.0), (0.4, 3.0), (0.7, 0.5)]]
    negative = [Observation(level=o.level, value=-(o.value or 0)) for o in seen]
    assert next_objective_level(seen, 0.7, SETTINGS, maximize=True) == next_objective_level(
        negative, 0.7, SETTINGS, maximize=False
    )

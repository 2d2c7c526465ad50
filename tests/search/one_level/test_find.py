"""Each stage on functions whose answer is known."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nncfx.errors import ArgumentError, CompressionError, SearchError
from nncfx.search import Observation, Study, find_level, optimize_objective, paired_difference

DENSE, THRESHOLD = 0.93, 0.91


def power(knee: float, exponent: float) -> Callable[[float], float]:
    return lambda level: DENSE - 0.02 * (level / knee) ** exponent


def of_size(knee: float) -> Callable[[float], float]:
    """Accuracy that falls with how many times smaller the model is."""
    return lambda level: DENSE - 0.02 * (1 / (1 - level) - 1) / (1 / (1 - knee) - 1)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("knee", [0.16, 0.5, 0.85, 0.95, 0.999])
def test_the_level_found_is_feasible_and_near_the_crossing(knee: float, known: bool) -> None:
    for curve in (power(knee, 6), of_size(knee)):
        found = find_level(curve, THRESHOLD, at_zero=DENSE if known else None)
        assert 0 <= knee - found.level <= (0.002 if knee > 0.9 else 0.01)
        assert found.bracket[0] == found.level
        assert found.level in [seen.level for seen in found.evaluations]
        assert len(found.evaluations) <= 9


def test_the_evaluations_are_those_that_were_made() -> None:
    asked: list[float] = []

    def evaluate(level: float) -> float:
        asked.append(level)
        return power(0.6, 4)(level)

    found = find_level(evaluate, THRESHOLD)
    assert [seen.level for seen in found.evaluations] == asked
    assert all(seen.value == power(0.6, 4)(seen.level) for seen in found.evaluations)
    assert len(set(asked)) == len(asked)


def test_a_step_is_found_as_bisection_would() -> None:
    found = find_level(lambda level: 0.93 if level < 0.337 else 0.1, THRESHOLD)
    assert 0 <= 0.337 - found.level <= 0.01
    assert len(found.evaluations) <= 9


def test_accuracy_counted_on_few_images_is_handled() -> None:
    curve = power(0.6, 5)
    found = find_level(lambda level: math.floor(curve(level) * 90) / 90, THRESHOLD, at_zero=DENSE)
    # one image of 90 is 0.011 of accuracy: floor(0.91 * 90) / 90 = 0.9 < 0.91, so 82 must be right
    crossing = 0.6 * ((DENSE - 82 / 90) / 0.02) ** (1 / 5)
    assert 0 <= crossing - found.level <= 0.01


@pytest.mark.parametrize("threshold", [0.0, -4.6, 75.0])
def test_the_unit_and_sign_of_the_metric_do_not_matter(threshold: float) -> None:
    found = find_level(lambda level: threshold + 3 * (0.6**4 - level**4), threshold)
    assert 0 <= 0.6 - found.level <= 0.01
    assert len(found.evaluations) <= 9


def test_a_metric_that_never_falls_ends_within_a_cell_of_the_upper_end() -> None:
    assert 0.49 <= find_level(lambda _: 1.0, 0.9, upper=0.5).level < 0.5
    assert 0.998 <= find_level(lambda _: 1.0, 0.9).level < 1


def test_a_metric_below_the_threshold_everywhere_is_refused() -> None:
    with pytest.raises(SearchError, match=r"The metric at level 0 is 0\.5, below the threshold"):
        find_level(lambda _: 0.5, 0.9)


@pytest.mark.parametrize("threshold", [None, math.nan, "0.9", 1j])
def test_a_threshold_that_is_no_finite_number_is_refused(threshold: Any) -> None:  # noqa: ANN401
    with pytest.raises(ArgumentError, match=r"threshold is .* Write the least metric"):
        find_level(lambda _: 0.9, threshold)


def test_a_dense_metric_below_the_threshold_costs_no_evaluation() -> None:
    def evaluate(_: float) -> float:
        raise AssertionError

    with pytest.raises(SearchError, match="Lower the threshold"):
        find_level(evaluate, 0.9, at_zero=0.8)


def test_only_level_0_feasible_is_an_answer() -> None:
    found = find_level(lambda level: 1.0 if level == 0 else 0.0, 0.9)
    assert found.level == 0
    assert 0 < found.bracket[1] <= 0.01
    assert len(found.evaluations) <= 10


def test_a_failing_evaluation_is_infeasible() -> None:
    def evaluate(level: float) -> float:
        if level > 0.4:
            raise CompressionError("no channels left")
        return 0.93

    found = find_level(evaluate, THRESHOLD, at_zero=DENSE)
    assert 0.39 <= found.level <= 0.4
    assert any(seen.value is None for seen in found.evaluations)


def test_four_failures_in_a_row_end_the_search() -> None:
    def evaluate(_: float) -> float:
        raise CompressionError("the loader is empty")

    with pytest.raises(SearchError, match=r"first 4 trials all failed.*the loader is empty"):
        find_level(evaluate, THRESHOLD, at_zero=DENSE)


@pytest.mark.parametrize("allowed", [1, 2, 3, 5])
def test_max_evaluations_is_never_exceeded(allowed: int) -> None:
    found = find_level(power(0.16, 2), THRESHOLD, max_evaluations=allowed)
    assert len(found.evaluations) <= allowed


def test_a_study_spares_what_was_measured() -> None:
    study = Study()
    first = find_level(power(0.6, 4), THRESHOLD, study=study)

    def evaluate(_: float) -> float:
        raise AssertionError

    assert find_level(evaluate, THRESHOLD, study=study) == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tolerance": 0}, "tolerance is 0; it is a step"),
        ({"max_evaluations": 0}, "max_evaluations is 0"),
        ({"max_evaluations": None}, "max_evaluations is None; it is a whole number"),
        ({"max_evaluations": np.int64(9)}, r"np.int64\(9\); it is a whole number"),
        ({"upper": 90}, "upper is 90; it bounds a level"),
        ({"caution": -1.0}, "caution is"),
        ({"caution": math.nan}, "caution is"),
    ],
)
def test_a_setting_out_of_range_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        find_level(power(0.6, 4), THRESHOLD, **arguments)


@pytest.mark.parametrize("optimum", [0.2, 0.45, 0.7])
def test_an_inner_optimum_is_found(optimum: float) -> None:
    found = optimize_objective(lambda level: -((level - optimum) ** 2), 0.8, maximize=True)
    assert found.level == pytest.approx(optimum, abs=0.02)
    assert len(found.evaluations) <= 10


def test_an_objective_best_at_the_end_costs_one_evaluation_there() -> None:
    known = [Observation(level=0.1 * i, value=1 - 0.1 * i) for i in range(7)]
    found = optimize_objective(lambda level: 1 - level, 0.7, maximize=False, observations=known)
    assert found.level == pytest.approx(0.7, abs=0.01)
    assert len(found.evaluations) == 1


def test_nothing_beyond_upper_is_measured_or_chosen() -> None:
    known = [Observation(level=0.9, value=100.0), Observation(level=0.2, value=1.0)]
    found = optimize_objective(lambda level: level, 0.5, maximize=True, observations=known)
    assert found.level <= 0.5
    assert all(seen.level <= 0.5 for seen in found.evaluations)


def test_an_objective_that_always_fails_and_an_upper_that_is_no_level_are_refused() -> None:
    def evaluate(_: float) -> float:
        raise CompressionError("no runtime")

    with pytest.raises(SearchError, match=r"No level up to 0.5 could be measured"):
        optimize_objective(evaluate, 0.5, maximize=True)
    with pytest.raises(ArgumentError, match="upper is 1; it is the highest admissible level"):
        optimize_objective(evaluate, 1, maximize=True)


def test_a_metric_with_a_standard_error_is_kept_away_from_the_threshold() -> None:
    curve, error = power(0.6, 4), 0.004
    found = find_level(lambda level: (curve(level), error), THRESHOLD, at_zero=DENSE)
    crossing = 0.6 * ((0.02 - 2 * error) / 0.02) ** (1 / 4)
    assert 0 <= crossing - found.level <= 0.01
    assert all(seen.value == curve(seen.level) for seen in found.evaluations)
    assert {seen.standard_error for seen in found.evaluations} == {error}
    bold = find_level(lambda level: (curve(level), error), THRESHOLD, at_zero=DENSE, caution=0)
    assert 0 <= 0.6 - bold.level <= 0.01


def counted(generator: np.random.Generator, loss: float, images: int) -> tuple[float, float]:
    """Draw what `images` show of a model that truly loses `loss`: accuracy and its error.

    Besides what it loses, it answers 2.5 % of the images otherwise in each direction.
    """
    lost, gained, _ = generator.multinomial(images, [loss + 0.025, 0.025, 0.95 - loss]).tolist()
    same = images - lost - gained
    found = paired_difference([1.0] * lost + [-1.0] * gained + [0.0] * same, of_shares=True)
    return DENSE - found.mean, found.standard_error


@pytest.mark.slow
def test_nine_of_ten_searches_keep_the_budget_where_images_are_few() -> None:
    """The law is known, and 1,000 images show it; so many searches go beyond it without errors."""
    generator = np.random.default_rng(0)
    curve, searches, beyond = power(0.6, 4), 20, {"cautious": 0, "bold": 0}
    for _ in range(searches):
        for name, taken in (("cautious", slice(2)), ("bold", slice(1))):

            def evaluate(level: float, taken: slice = taken) -> float | tuple[float, float]:
                loss = min(DENSE - curve(level), 0.9)
                found = counted(generator, loss, 1000)[taken]
                return found if len(found) == 2 else found[0]

            found = find_level(
                evaluate, THRESHOLD, at_zero=DENSE, tolerance=0.02, max_evaluations=7
            )
            beyond[name] += curve(found.level) < THRESHOLD
    assert beyond["cautious"] <= 0.1 * searches
    assert beyond["bold"] > 0.25 * searches

"""An objective measures, compares and says what is wrong with a measurement."""

import math

import pytest

from nncfx.errors import ArgumentError
from nncfx.objectives import Objective, Subject, footprint, throughput


def constant(value: object, *, maximize: bool = True) -> Objective:
    return Objective("score", "points", maximize, lambda _: value)  # type: ignore[arg-type, return-value]  # wrong on purpose


def test_evaluate_returns_a_float_of_what_was_measured(subject: Subject) -> None:
    assert constant(3).evaluate(subject) == 3.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_measurement_that_is_not_finite_is_refused(subject: Subject, value: float) -> None:
    with pytest.raises(ArgumentError, match=r"'score' measured (nan|inf|-inf); a search can only"):
        constant(value).evaluate(subject)


def test_a_measurement_that_is_no_number_is_refused(subject: Subject) -> None:
    with pytest.raises(ArgumentError, match="'score' measured None, a NoneType"):
        constant(None).evaluate(subject)


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ArgumentError, match="empty name"):
        Objective(" ", "", maximize=True, measure=lambda _: 1.0)


def test_a_measure_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'measure' of objective 'x' is 3"):
        Objective("x", "", maximize=True, measure=3)  # type: ignore[arg-type]  # wrong on purpose


def test_more_is_better_when_maximizing_and_less_when_minimizing() -> None:
    assert throughput.is_better(2.0, than=1.0)
    assert not throughput.is_better(1.0, than=2.0)
    assert footprint.is_better(1.0, than=2.0)
    assert not footprint.is_better(2.0, than=1.0)


def test_a_tie_is_not_better() -> None:
    assert not throughput.is_better(1.0, than=1.0)
    assert not footprint.is_better(1.0, than=1.0)


def test_gain_of_nothing_left_is_infinite_and_of_nothing_at_all_is_one() -> None:
    assert footprint.gain(before=5.0, after=0.0) == math.inf
    assert footprint.gain(before=0.0, after=0.0) == 1.0


def test_gain_above_one_means_better_in_either_direction() -> None:
    assert throughput.gain(10.0, 30.0) == 3.0
    assert footprint.gain(30.0, 10.0) == 3.0

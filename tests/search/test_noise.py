"""How surely two models that saw the same data differ."""

import math

import numpy as np
import pytest
from scipy import stats

from nncfx.errors import ArgumentError
from nncfx.search import CAUTION, Difference, paired_difference


def test_the_error_of_shares_is_that_of_bonett_and_price() -> None:
    lost, gained, same = 30, 18, 952
    found = paired_difference([1] * lost + [-1] * gained + [0] * same, of_shares=True)
    # their formula, from the counts: (f + 1) / (n + 2) for each of the two kinds of difference
    p, q = 31 / 1002, 19 / 1002
    assert found.mean == pytest.approx(0.012)
    assert found.standard_error == pytest.approx(math.sqrt((p + q - (p - q) ** 2) / 1002))


def test_shares_that_do_not_differ_in_the_sample_may_differ_elsewhere() -> None:
    found = paired_difference([0.0] * 100, of_shares=True)
    assert found.mean == 0
    error = math.sqrt(2 / 102 / 102)
    assert found.interval()[1] == pytest.approx(stats.t.ppf(0.975, 99) * error, rel=1e-3)


def test_the_error_of_a_mean_is_that_of_every_textbook() -> None:
    values = np.random.default_rng(0).normal(size=12)
    found = paired_difference(values.tolist())
    assert found.mean == pytest.approx(values.mean())
    assert found.standard_error == pytest.approx(stats.sem(values))


def test_a_unit_of_twice_the_weight_moves_the_mean_twice_as_far() -> None:
    assert paired_difference([0.0, 3.0], weights=[1, 2]).mean == pytest.approx(2.0)


@pytest.mark.parametrize("units", [2, 3, 4, 8, 1000])
def test_intervals_are_wider_with_fewer_units_as_student_says(units: int) -> None:
    low, high = Difference(mean=0.0, standard_error=1.0, units=units).interval(0.95)
    assert (low, high) == pytest.approx(stats.t.interval(0.95, units - 1), rel=0.02)


def test_caution_is_as_safe_with_few_units_as_with_many() -> None:
    few = Difference(mean=0.0, standard_error=1.0, units=4)
    assert CAUTION * few.cautious_error == pytest.approx(
        stats.t.ppf(stats.norm.cdf(CAUTION), 3), rel=0.01
    )


@pytest.mark.parametrize(("lost", "gained"), [(0.03, 0.02), (0.006, 0.004), (0.1, 0.02)])
def test_intervals_hold_the_true_loss_as_often_as_they_say(lost: float, gained: float) -> None:
    generator = np.random.default_rng(1)
    draws = generator.multinomial(500, [lost, gained, 1 - lost - gained], size=400)
    held = 0
    for a, b, c in draws.tolist():
        low, high = paired_difference(
            [1.0] * a + [-1.0] * b + [0.0] * c, of_shares=True
        ).interval()
        held += low <= lost - gained <= high
    # 95 % of 400 is 380; 365 is beyond three standard deviations (4.4 each) below
    assert held >= 365


def test_one_unit_has_no_error() -> None:
    with pytest.raises(ArgumentError, match="1 differences with 1 weights have no standard error"):
        paired_difference([0.5])
    with pytest.raises(ArgumentError, match="as many weights"):
        paired_difference([0.5, 0.1], weights=[1.0])

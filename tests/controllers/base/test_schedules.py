"""The formulas, against the values that NNCF publishes and against laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.config import SparsityParams
from nncfx.controllers import (
    BiasedExponentialSchedule,
    ExponentialSchedule,
    FunctionSchedule,
    MultistepSchedule,
    PolynomialSchedule,
    Schedule,
    WarmUp,
    sparsity_schedule,
)
from nncfx.errors import ArgumentError

LEVELS = st.floats(0, 0.99)
EPOCHS = st.integers(0, 50)


def levels(schedule: Schedule, count: int) -> list[float]:
    return [schedule.level(epoch) for epoch in range(count)]


def test_convex_polynomial_rises_last() -> None:
    schedule = PolynomialSchedule(initial=0.2, target=0.6, epochs=2, power=2, concave=False)
    assert levels(schedule, 3) == pytest.approx([0.2, 0.3, 0.6], abs=1e-12)


def test_polynomial_over_no_epochs_is_at_the_target() -> None:
    assert PolynomialSchedule(initial=0.2, target=0.6, epochs=0).level(0) == 0.6


def test_biased_exponential_with_warm_up_gives_the_published_values() -> None:
    schedule = WarmUp(epochs=3, then=BiasedExponentialSchedule(initial=0.1, target=0.7, epochs=4))
    published = [0, 0, 0, 0.1, 0.6489741, 0.6956869, 0.6996617, 0.7, 0.7]
    assert levels(schedule, 9) == pytest.approx(published, abs=1e-7)


def test_multistep_gives_the_published_values() -> None:
    schedule = MultistepSchedule(steps=(2, 3, 4), levels=(0.2, 0.4, 0.5, 0.6))
    assert levels(schedule, 6) == [0.2, 0.2, 0.4, 0.5, 0.6, 0.6]


def test_biased_exponential_meets_its_three_conditions() -> None:
    schedule = BiasedExponentialSchedule(initial=0.1, target=0.6, epochs=16)
    assert levels(schedule, 1) == pytest.approx([0.1], abs=1e-12)
    assert schedule.level(2) == pytest.approx(0.75 * 0.6, abs=1e-12)
    assert schedule.level(16) == pytest.approx(0.6, abs=1e-12)


def test_biased_exponential_near_its_target_goes_straight() -> None:
    schedule = BiasedExponentialSchedule(initial=0.5, target=0.6, epochs=10)
    assert schedule.level(5) == pytest.approx(0.55)


def test_a_schedule_over_negative_epochs_is_refused() -> None:
    with pytest.raises(ArgumentError, match="over -1 epochs has no end"):
        ExponentialSchedule(initial=0, target=0.5, epochs=-1).level(0)


@pytest.mark.parametrize(
    "kind", [PolynomialSchedule, ExponentialSchedule, BiasedExponentialSchedule]
)
@given(bounds=st.tuples(LEVELS, LEVELS), epochs=EPOCHS, at=st.floats(0, 60))
def test_a_schedule_rises_from_its_start_to_its_target(
    kind: type[ExponentialSchedule], bounds: tuple[float, float], epochs: int, at: float
) -> None:
    low, high = sorted(bounds)
    schedule = kind(initial=low, target=high, epochs=epochs)
    tolerance = 1e-12  # a few roundings of numbers below 1
    assert low - tolerance <= schedule.level(at) <= high + tolerance
    assert schedule.level(at) <= schedule.level(at + 1) + tolerance
    assert schedule.level(epochs) == pytest.approx(high, abs=tolerance)


@pytest.mark.parametrize(
    "kind", [PolynomialSchedule, ExponentialSchedule, BiasedExponentialSchedule]
)
@given(
    bounds=st.tuples(LEVELS, LEVELS).filter(lambda pair: pair[0] != pair[1]),
    epochs=st.integers(1, 50),
)
def test_both_ends_are_hit_to_the_last_bit(
    kind: type[ExponentialSchedule], bounds: tuple[float, float], epochs: int
) -> None:
    low, high = sorted(bounds)
    schedule = kind(initial=low, target=high, epochs=epochs)
    assert (schedule.level(0), schedule.level(epochs)) == (low, high)


def test_cubic_is_zhu_and_guptas_curve_whatever_the_power() -> None:
    params = SparsityParams(
        schedule="cubic", sparsity_target=0.8, sparsity_target_epoch=4, power=1, concave=False
    )
    # s_f + (s_i - s_f) (1 - t)^3, equation 1 of arXiv:1710.01878
    expected = [0.8 - 0.8 * (1 - epoch / 4) ** 3 for epoch in range(5)]
    assert levels(sparsity_schedule(0.0, params), 5) == pytest.approx(expected, abs=1e-12)


def test_constant_is_the_target_from_the_first_epoch() -> None:
    params = SparsityParams(schedule="constant", sparsity_target=0.7)
    assert levels(sparsity_schedule(0.0, params), 3) == [0.7] * 3


@pytest.mark.parametrize("wrong", [1.0, -0.1, 50, None])
def test_a_function_that_returns_no_level_is_told(wrong: float) -> None:
    with pytest.raises(ArgumentError, match=r"lies in \[0, 1\)"):
        FunctionSchedule(function=lambda _: wrong).level(0)

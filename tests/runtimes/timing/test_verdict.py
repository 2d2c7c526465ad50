"""A winner is named only where the intervals are apart."""

from dataclasses import replace

import numpy as np
import pytest

from nncfx.runtimes import Timing, TimingPlan, verdict
from nncfx.runtimes.timing.statistics import bootstrap_medians, percentile_interval


def timing_of(samples: list[float], *, examples: int = 1, series: str = "one") -> Timing:
    rounds = tuple((sample,) for sample in samples)
    plan = TimingPlan(resamples=200)
    medians = bootstrap_medians(rounds, resamples=plan.resamples, seed=plan.seed)
    return Timing(
        median_ms=float(np.median(samples)),
        interval_ms=percentile_interval(medians, 0.95),
        first_ms=samples[0],
        examples=examples,
        settled=True,
        rounds_ms=rounds,
        plan=plan,
        series=series,
    )


def noisy(median: float, seed: int, *, examples: int = 1, spread: float = 0.05) -> Timing:
    generator = np.random.default_rng(seed)
    return timing_of((median * generator.lognormal(0, spread, 50)).tolist(), examples=examples)


@pytest.mark.parametrize(("dense", "pruned"), [(4.0, 2.0), (2.0, 4.0)])
def test_a_clear_difference_has_a_winner_and_a_speed_up(dense: float, pruned: float) -> None:
    result = verdict(timing_of([dense] * 9), timing_of([pruned] * 9), names=("dense", "pruned"))
    first, second = ("pruned", "dense") if pruned < dense else ("dense", "pruned")
    assert (result.winner, result.speed_up) == (first, dense / pruned)
    assert result.text == f"{first} is 2.00x as fast as {second} (interval 2.00 to 2.00)."


def test_overlapping_intervals_have_no_winner() -> None:
    first, second = timing_of([1.0, 2.0, 3.0, 4.0, 5.0]), timing_of([1.5, 2.5, 3.5, 4.5, 5.5])
    result = verdict(first, second)
    assert result.winner is None
    assert result.text.startswith("No winner: the intervals of the first and the second overlap")


def test_intervals_that_touch_have_no_winner() -> None:
    first = replace(timing_of([1.0] * 9), interval_ms=(1.0, 2.0))
    second = replace(timing_of([3.0] * 9), interval_ms=(2.0, 3.0))
    assert verdict(first, second).winner is None
    assert verdict(second, first).winner is None


def test_batches_of_different_sizes_compare_by_throughput() -> None:
    one, eight = timing_of([2.0] * 9, examples=1), timing_of([8.0] * 9, examples=8)
    result = verdict(one, eight, names=("one", "eight"))
    assert (result.winner, result.speed_up) == ("eight", 2.0)


def test_equal_variants_get_a_winner_in_fewer_than_5_percent_of_comparisons() -> None:
    winners = [verdict(noisy(2.0, 2 * k), noisy(2.0, 2 * k + 1)).winner for k in range(200)]
    assert sum(winner is not None for winner in winners) < 0.05 * len(winners)


def test_the_interval_of_the_speed_up_holds_the_true_one() -> None:
    # 200 trials of a 95 % interval: 0.95 less three standard errors of 0.0154.
    hits = 0
    for k in range(200):
        low, high = verdict(noisy(3.0, 2 * k), noisy(2.0, 2 * k + 1)).speed_up_interval
        hits += low <= 1.5 <= high
    assert hits / 200 >= 0.95 - 3 * 0.0154


def test_what_disturbs_a_round_of_both_cancels_in_the_speed_up() -> None:
    drift = np.random.default_rng(0).lognormal(0, 0.3, 50)
    first, second = timing_of((3 * drift).tolist()), timing_of((2 * drift).tolist())
    assert verdict(first, second).speed_up_interval == pytest.approx((1.5, 1.5))


def test_a_burst_that_hits_one_variant_only_does_not_move_the_speed_up() -> None:
    # A third of the turns of the second meets other work; medians of all calls would say 0.67.
    calm = [2.0, 2.02, 1.98] * 10
    hit = [4.0 if k % 3 == 0 else 2.0 for k in range(30)]
    assert verdict(timing_of(calm), timing_of(hit)).speed_up == pytest.approx(1.0, abs=0.015)


def test_timings_of_two_comparisons_are_compared_by_their_medians() -> None:
    first = timing_of([1.0, 2.0, 30.0] * 3, series="one")
    second = timing_of([2.0, 1.0, 10.0] * 3, series="two")
    assert verdict(first, second).speed_up == 1.0
    assert verdict(first, replace(second, series="one")).speed_up == 2.0


def test_equal_turns_have_no_winner_even_where_the_intervals_are_apart() -> None:
    first = replace(timing_of([1.0, 2.0, 3.0] * 3), interval_ms=(1.0, 1.1))
    second = replace(timing_of([1.0, 2.0, 3.0] * 3), interval_ms=(2.0, 2.1))
    assert verdict(first, second).winner is None

"""The median and its interval: by hand, against numpy, and by simulated coverage."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nncfx.runtimes.timing.statistics import Array, bootstrap_medians, percentile_interval


def direct_bootstrap(rounds: list[list[float]], resamples: int, seed: int) -> list[float]:
    """The obvious, slow version: draw rounds, pool them, take numpy's median."""
    generator = np.random.default_rng(seed)
    even = np.full(len(rounds), 1 / len(rounds))
    medians = []
    for _ in range(resamples):
        counts = generator.multinomial(len(rounds), even)
        pool = [x for samples, count in zip(rounds, counts, strict=True) for x in samples * count]
        medians.append(float(np.median(pool)))
    return medians


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(st.integers(0, 9).map(float), min_size=1, max_size=9), min_size=1, max_size=9
    ),
    st.integers(0, 99),
)
def test_it_equals_the_obvious_version(rounds: list[list[float]], seed: int) -> None:
    fast = bootstrap_medians(rounds, resamples=20, seed=seed)
    assert fast.tolist() == direct_bootstrap(rounds, 20, seed)


def test_one_round_leaves_nothing_to_draw() -> None:
    assert set(bootstrap_medians([[1.0, 3.0]], resamples=10, seed=0)) == {2.0}


def test_the_same_seed_gives_the_same_drawings() -> None:
    rounds = [[float(k)] for k in range(20)]
    first, second = (bootstrap_medians(rounds, resamples=50, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_the_interval_holds_the_central_share() -> None:
    assert percentile_interval(np.arange(101.0), 0.9) == pytest.approx((5.0, 95.0))


def covered(draw: object, true_median: float, trials: int) -> float:
    hits = 0
    for seed in range(trials):
        generator = np.random.default_rng(10_000 + seed)
        medians = bootstrap_medians(draw(generator), resamples=400, seed=seed)  # type: ignore[operator]  # a function
        low, high = percentile_interval(medians, 0.95)
        hits += low <= true_median <= high
    return hits / trials


def single(samples: Array) -> list[list[float]]:
    return [[float(sample)] for sample in samples]


# With 1000 trials the share of hits has a standard error of 0.007: 93 to 97 % is three of them.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "median"),
    [
        pytest.param(lambda g: single(g.exponential(size=61)), math.log(2), id="exponential"),
        pytest.param(lambda g: single(g.lognormal(size=61)), 1.0, id="lognormal"),
        pytest.param(
            lambda g: single(g.normal(10.0, 1.0, 61) + 50.0 * (g.random(61) < 0.02)),
            # Median of the mixture: 0.98 Phi(m - 10) = 0.5.
            10.0 + 0.02559,
            id="normal with outliers",
        ),
        pytest.param(
            # Calls of one round share what slows the machine down then.
            lambda g: [
                (mean + g.normal(0.0, 0.5, 5)).tolist() for mean in g.normal(10.0, 1.0, 50)
            ],
            10.0,
            id="rounds that drift",
        ),
    ],
)
def test_the_95_percent_interval_holds_the_median_in_93_to_97_percent(
    draw: object, median: float
) -> None:
    assert 0.93 <= covered(draw, median, trials=1000) <= 0.97


def test_drawing_single_calls_would_promise_too_much() -> None:
    # The teeth of the test above: the same rounds, taken as if each call stood alone.
    def draw(g: np.random.Generator) -> list[list[float]]:
        means = g.normal(10.0, 1.0, 50)
        return [[x] for mean in means for x in (mean + g.normal(0.0, 0.5, 5)).tolist()]

    assert covered(draw, 10.0, trials=200) < 0.8

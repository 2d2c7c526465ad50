"""Estimates of the largest magnitude."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nncfx.hago.strategy.thresholds import (
    BINS,
    THRESHOLD_METHODS,
    TensorStatistics,
    average_range,
    kl_estimate,
    max_range,
    power2_range,
    quantile_range,
)


def statistics_of(values: torch.Tensor) -> TensorStatistics:
    low, high = float(values.min()), float(values.max())
    bound = max(-low, high) or 1.0
    counts = torch.histc(values.float(), BINS, -bound, bound).double().numpy()
    return TensorStatistics([low], [high], counts)


def test_max_range_is_the_largest_magnitude_of_all_batches() -> None:
    assert max_range(TensorStatistics([-1.0, -5.0], [2.0, 3.0])) == 5.0


@given(st.floats(2**-30, 2**30))
def test_power2_range_is_the_next_power_of_two(value: float) -> None:
    found = power2_range(TensorStatistics([-value], [0.0]))
    assert math.log2(found).is_integer()
    assert value <= found < 2 * value


def test_average_range_is_the_larger_mean_of_ends() -> None:
    assert average_range(TensorStatistics([-1.0, -5.0], [4.0, 4.0])) == 4.0


@pytest.mark.parametrize("method", THRESHOLD_METHODS)
def test_what_is_zero_everywhere_has_threshold_one(method: str) -> None:
    assert THRESHOLD_METHODS[method](statistics_of(torch.zeros(5))) == 1.0


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.999])
def test_the_quantile_is_that_of_the_values_to_half_a_bin(quantile: float) -> None:
    values = torch.randn(20_000, generator=torch.Generator().manual_seed(0)) + 1
    expected = float(torch.quantile(values, quantile))
    width = 2 * float(values.abs().max()) / BINS
    assert quantile_range(statistics_of(values), quantile) == pytest.approx(expected, abs=width)


def test_a_quantile_below_zero_gives_way_to_the_largest_magnitude() -> None:
    assert quantile_range(statistics_of(torch.tensor([-3.0, -2.0, -1.0])), 0.5) == 3.0


def mxnet_threshold(values: np.ndarray) -> float:
    """MXNet's `_get_optimal_threshold`, loop for loop."""
    bound = np.abs(values).max()
    hist, edges = np.histogram(values, bins=BINS, range=(-bound, bound))
    zero, half = BINS // 2, 255 // 2
    best, threshold = np.inf, 0.0
    for i in range(half, zero + 1):
        start, stop = zero - i, min(zero + i + 1, BINS)
        sliced = hist[start:stop]
        p = sliced.astype(float).copy()
        p[0] += hist[:start].sum()
        p[-1] += hist[stop:].sum()
        nonzero = (p != 0).astype(float)
        merged = sliced.size // 255
        q = np.zeros_like(p)
        for j in range(255):
            a, b = j * merged, (sliced.size if j == 254 else (j + 1) * merged)
            filled = nonzero[a:b].sum()
            if filled:
                q[a:b] = sliced[a:b].sum() / filled
        q[p == 0] = 0
        smoothed = []
        for one in (p, q):
            empty = (one == 0).astype(float)
            filled = one.size - empty.sum()
            taken = 1e-4 * empty.sum() / filled if filled else np.inf
            smoothed.append(one + 1e-4 * empty - taken * (1 - empty) if taken < 1 else None)
        if smoothed[0] is None or smoothed[1] is None or (smoothed[1] <= 0).any():
            continue
        p, q = (one / one.sum() for one in smoothed)
        divergence = (p * np.log(p / q)).sum()
        if divergence < best:
            best, threshold = divergence, edges[stop]
    return threshold


@pytest.mark.slow
def test_kl_estimate_is_mxnets() -> None:
    values = torch.randn(30_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values[:5] *= 8
    expected = mxnet_threshold(values.float().double().numpy())
    bin_width = 2 * float(values.abs().max()) / BINS
    # torch and numpy put a few values that lie on an edge into other bins
    assert kl_estimate(statistics_of(values)) == pytest.approx(expected, abs=2 * bin_width)


def test_kl_estimate_clips_outliers() -> None:
    values = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    values[0] = 100.0
    assert kl_estimate(statistics_of(values)) < 20

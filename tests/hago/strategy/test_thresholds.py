"""Estimates of the largest magnitude."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nncfx.hago import prepare_graph
from nncfx.hago.strategy.thresholds import THRESHOLD_METHODS, estimate_thresholds
from nncfx.targets import hardware_named


def threshold(batches: list[torch.Tensor], method: str) -> float:
    """Return the threshold of the input of a model that sees `batches`, columns of numbers."""
    graph = prepare_graph(nn.Sequential(nn.Linear(1, 1), nn.ReLU()), torch.ones(1, 1))
    found = estimate_thresholds(graph, hardware_named("hago"), batches, method)[0]
    assert isinstance(found, float)
    return found


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32).view(-1, 1)


NORMAL = torch.randn(20_000, 1, generator=torch.Generator().manual_seed(0))


def test_max_range_is_the_largest_magnitude_of_all_batches() -> None:
    assert threshold([column(-1, 2), column(-5, 3)], "max_range") == 5


@given(st.floats(2**-30, 2**30, width=32))
def test_power2_range_is_the_next_power_of_two(value: float) -> None:
    found = threshold([column(-value, 0)], "power2_range")
    assert math.log2(found).is_integer()
    assert value <= found < 2 * value


def test_average_range_is_the_larger_mean_of_the_ends_of_batches() -> None:
    assert threshold([column(-1, 4), column(-5, 4)], "avg_range") == 4
    assert threshold([column(-1, 0), column(-3, 2)], "avg_range") == 2


@pytest.mark.parametrize("method", THRESHOLD_METHODS)
def test_what_is_zero_everywhere_has_threshold_one(method: str) -> None:
    assert threshold([torch.zeros(5, 1)], method) == 1


def test_the_quantile_is_that_of_the_values_to_a_bin() -> None:
    values = NORMAL + 1
    # a histogram has 4096 bins, from the power of two below the largest to that above
    width = 2 * 8 / 4096
    expected = float(torch.quantile(values, 0.9999))
    assert threshold(list(values.split(5000)), "quantile_range") == pytest.approx(
        expected, abs=width
    )


def test_a_quantile_below_zero_gives_way_to_the_largest_magnitude() -> None:
    assert threshold([column(-3, -2, -1)], "quantile_range") == 3


def test_kl_estimate_clips_outliers() -> None:
    values = NORMAL.clone()
    values[0] = 100
    assert threshold([values], "kl_estimate") < 20

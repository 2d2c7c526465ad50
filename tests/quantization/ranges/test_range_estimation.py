"""Ranges from statistics."""

import pytest
import torch
from torch import Tensor

from nncfx.errors import ArgumentError
from nncfx.quantization import QuantizerSpec, RangeRequest, fake_quantize, qparams_from_range
from nncfx.quantization.ranges.range_estimation import kl_threshold, range_from, statistic_for

SYMMETRIC = QuantizerSpec()
ASYMMETRIC = QuantizerSpec(mode="asymmetric", signed=False)
METHODS = (
    *("min_max", "mean_min_max", "mixed_min_max", "threesigma", "percentile"),
    *("mean_percentile", "mse", "kl"),
)


def found(x: Tensor, spec: QuantizerSpec = SYMMETRIC, **request: object) -> tuple[float, float]:
    asked = RangeRequest(**request)  # type: ignore[arg-type]  # by name
    statistic = statistic_for(asked)
    statistic.update(x)
    low, high = range_from(statistic, asked, spec)
    return float(low), float(high)


def normal(count: int = 20_000) -> Tensor:
    return torch.randn(20, count // 20, generator=torch.Generator().manual_seed(0))


def test_min_max_is_all_that_was_seen() -> None:
    assert found(torch.tensor([[-1.0, 2.0], [-4.0, 1.0]]), method="min_max") == (-4.0, 2.0)


def test_mean_min_max_is_the_mean_over_examples() -> None:
    assert found(torch.tensor([[-1.0, 2.0], [-4.0, 1.0]]), method="mean_min_max") == (-2.5, 1.5)


@pytest.mark.parametrize(("spec", "low"), [(SYMMETRIC, -4.0), (ASYMMETRIC, -2.5)])
def test_mixed_means_minima_only_where_asymmetric(spec: QuantizerSpec, low: float) -> None:
    x = torch.tensor([[-1.0, 2.0], [-4.0, 1.0]])
    assert found(x, spec, method="mixed_min_max") == (low, 1.5)


def test_percentiles_are_those_of_all_numbers() -> None:
    x = normal()
    low, high = found(x, method="percentile", low=1, high=99)
    expected = torch.quantile(x.flatten(), torch.tensor([0.01, 0.99])).tolist()
    # a bin is 1/2048 of the largest magnitude's power of two
    assert (low, high) == pytest.approx(expected, abs=2 * 8 / 2048)


def test_mean_percentiles_are_the_means_of_each_examples() -> None:
    x = normal()
    expected = [float(torch.quantile(x, one, dim=1).mean()) for one in (0.05, 0.95)]
    assert found(x, method="mean_percentile", low=5, high=95) == pytest.approx(expected, abs=1e-5)


def test_three_sigma_is_three_standard_deviations_of_a_normal() -> None:
    low, high = found(normal(200_000) + 1, method="threesigma")
    assert (low, high) == pytest.approx((-2.0, 4.0), abs=0.05)


def test_three_sigma_leaves_zeros_aside() -> None:
    low, high = found(normal(200_000).relu(), method="threesigma")
    assert low == 0
    assert high > 2


def test_mse_is_never_worse_than_min_max_and_clips_an_outlier() -> None:
    x = normal()
    x[0, 0] = 40.0
    spec = QuantizerSpec(bits=4)

    def error(low: float, high: float) -> float:
        grid = qparams_from_range(torch.tensor(low), torch.tensor(high), spec)
        return float((fake_quantize(x, *grid, spec) - x).square().mean())

    best, widest = found(x, spec, method="mse"), found(x, spec, method="min_max")
    assert best[1] < widest[1] / 2
    assert error(*best) < error(*widest) / 2


def test_least_entropy_clips_an_outlier_and_keeps_the_bulk() -> None:
    x = normal()
    x[0, 0] = 40.0
    low, high = found(x, method="kl")
    assert 3 < high < 20
    assert low == pytest.approx(max(-high, float(x.min())))


def test_a_histogram_that_the_grid_holds_is_not_clipped() -> None:
    assert kl_threshold(torch.tensor([5.0, 3.0, 2.0, 0.0]), 8) == 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [0.0, 2.5, -2.5])
def test_a_constant_has_both_ends_there(method: str, value: float) -> None:
    assert found(torch.full((4, 8), value), method=method) == (value, value)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("spec", [SYMMETRIC, ASYMMETRIC], ids=["symmetric", "asymmetric"])
def test_no_range_goes_beyond_what_was_seen(method: str, spec: QuantizerSpec) -> None:
    x = normal().relu() * 3
    low, high = found(x, spec, method=method)
    assert 0 <= low < high <= float(x.max())


def test_a_method_for_one_range_is_refused_along_an_axis() -> None:
    with pytest.raises(ArgumentError, match="'kl' gives one range"):
        statistic_for(RangeRequest(method="kl"), axis=1)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no range method 'max'"):
        RangeRequest(method="max")  # type: ignore[arg-type]  # the mistake


@pytest.mark.parametrize(("low", "high"), [(-1, 99), (50, 50), (10, 101)])
def test_percentiles_that_are_none_are_refused(low: float, high: float) -> None:
    with pytest.raises(ArgumentError, match="percentiles"):
        RangeRequest(low=low, high=high)

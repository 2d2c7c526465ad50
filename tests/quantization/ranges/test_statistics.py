"""Statistics of streams: merged, they are those of the whole."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nncfx.errors import ArgumentError
from nncfx.quantization.ranges.statistics import (
    Extremes,
    Histogram,
    MeanQuantiles,
    TensorStatistic,
)

KINDS = {
    "extremes": lambda: Extremes(with_means=True),
    "channels": lambda: Extremes(1, with_means=True),
    "histogram": Histogram,
    "quantiles": lambda: MeanQuantiles((0.01, 0.99)),
}


def batches(seed: int, count: int = 5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(3, 4, 5, generator=generator) * 10.0 ** (i - 2) for i in range(count)]


def seen(kind: str, data: list[Tensor]) -> TensorStatistic:
    statistic = KINDS[kind]()  # type: ignore[no-untyped-call]  # a lambda
    for one in data:
        statistic.update(one)
    return statistic


def state(statistic: TensorStatistic) -> list[Tensor]:
    found = [statistic.low, statistic.high]
    if isinstance(statistic, Histogram):
        return [*found, statistic.counts, torch.tensor(statistic.width)]
    assert isinstance(statistic, Extremes | MeanQuantiles)
    return [*found, *statistic.means()]


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(0, 1000), st.integers(1, 4), st.booleans())
@settings(max_examples=15, deadline=None)
def test_parts_merge_to_the_whole_bitwise_in_any_order(
    kind: str, seed: int, cut: int, reverse: bool
) -> None:
    data = batches(seed)
    whole = seen(kind, data)
    first, second = seen(kind, data[:cut]), seen(kind, data[cut:][::-1])
    if reverse:
        first, second = second, first
    first.merge(second)
    for one, other in zip(state(first), state(whole), strict=True):
        assert torch.equal(one, other)


def test_means_are_of_each_examples_extremes() -> None:
    statistic = Extremes(with_means=True)
    statistic.update(torch.tensor([[1.0, 2.0], [-3.0, 4.0]]))
    statistic.update(torch.tensor([[5.0, 6.0]]))
    low, high = statistic.means()
    assert (float(low), float(high)) == (1.0, 4.0)
    assert (float(statistic.low), float(statistic.high)) == (-3.0, 6.0)


def test_channels_have_extremes_of_their_own() -> None:
    statistic = Extremes(1)
    statistic.update(torch.tensor([[[1.0, 2.0], [-5.0, 0.0]]]))
    assert statistic.low.tolist() == [1.0, -5.0]
    assert statistic.high.tolist() == [2.0, 0.0]


def test_a_histogram_counts_every_number_where_it_lies() -> None:
    data = batches(3)
    statistic = seen("histogram", data)
    assert isinstance(statistic, Histogram)
    everything = torch.cat([one.flatten() for one in data]).double()
    place = torch.floor(everything / statistic.width).long() + statistic.bins // 2
    assert torch.equal(statistic.counts, torch.bincount(place, minlength=statistic.bins))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("exponent", [-125, -100, -3, 0, 11, 12, 30, 120])
def test_counts_are_those_of_an_exact_division_at_every_magnitude(
    exponent: int, dtype: torch.dtype
) -> None:
    x = (torch.randn(2, 500, dtype=torch.float64) * 2.0**exponent).to(dtype)
    x[0, :3] = torch.tensor([1e-45, -1e-45, -0.0])
    statistic = Histogram()
    statistic.update(x)
    places = (x.double() / statistic.width).floor().long().flatten() + statistic.bins // 2
    assert torch.equal(statistic.counts, torch.bincount(places, minlength=statistic.bins))


def test_a_histogram_of_zeros_has_no_width_until_something_else_comes() -> None:
    statistic = Histogram()
    statistic.update(torch.zeros(7))
    assert statistic.width == 0
    statistic.update(torch.ones(2))
    assert int(statistic.counts.sum()) == 9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_nan_and_infinity_are_seen(kind: str, value: float) -> None:
    data = batches(0)
    data[2][1, 2, 3] = value
    assert seen(kind, data).has_nan
    assert not seen(kind, batches(0)).has_nan


@pytest.mark.parametrize("kind", KINDS)
def test_empty_tensors_count_for_nothing(kind: str) -> None:
    assert seen(kind, [torch.zeros(0, 4, 5)]).is_empty


def test_quantiles_of_an_example_are_torchs() -> None:
    (x,) = batches(1, 1)
    statistic = MeanQuantiles((0.1, 0.75))
    statistic.update(x)
    rows = x.reshape(3, -1)
    expected = [torch.quantile(rows, one, dim=1).mean() for one in (0.1, 0.75)]
    assert torch.allclose(torch.stack(statistic.means()), torch.stack(expected))


def test_statistics_along_different_axes_are_not_merged() -> None:
    with pytest.raises(ArgumentError, match="axis 0 and axis 1"):
        Extremes(0).merge(Extremes(1))

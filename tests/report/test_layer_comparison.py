"""Two models layer by layer, without a run."""

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError
from nncfx.report import LayerComparison, compare_layers
from nncfx.thinning import thin

IMAGE = torch.ones(1, 3, 8, 8)


@pytest.fixture(scope="module")
def compared() -> LayerComparison:
    """Return a network of two convolutions before and after half of the first has gone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    model[2].weight.data[:, ::2] = 0
    return compare_layers(model, thin(model, IMAGE).model, IMAGE, runs=3)


def test_channels_and_macs_are_of_both_models(compared: LayerComparison) -> None:
    """36 pixels are made, each of 27 products for each channel of the first layer."""
    first, second = compared.rows
    assert (first.module, second.module) == ("0", "2")
    assert (first.channels_before, first.channels_after) == (8, 4)
    assert (first.macs_before, first.macs_after) == (36 * 27 * 8, 36 * 27 * 4)
    assert (second.in_channels_before, second.in_channels_after) == (8, 4)
    assert (second.channels_before, second.channels_after) == (4, 4)


def test_both_models_are_timed(compared: LayerComparison) -> None:
    assert all(row.time_before_ms and row.time_after_ms for row in compared.rows)


def test_the_table_is_text_and_markdown(compared: LayerComparison) -> None:
    lines = str(compared).splitlines()
    assert any(line.split()[:6] == ["0", "3", "x", "3", "3", "→"] for line in lines)
    assert "all layers" in lines[-1 if lines[-1] else -2]
    first = compared.to_markdown().splitlines()[2]
    assert first.startswith("| 0 3 x 3 | 3 → 8 | 3 → 4 | 7.78 k | 3.89 k | ")


def test_the_table_says_of_what_call_the_times_are(compared: LayerComparison) -> None:
    assert "Times of one call: batch 1, 1 thread" in str(compared)
    assert "Times of one call: batch 1, 1 thread." in compared.to_markdown()


def test_numbers_of_runs_that_cannot_be_are_told() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1))
    with pytest.raises(ArgumentError, match="runs is 0"):
        compare_layers(model, model, IMAGE, runs=0)

"""One call: the smallest file within an accuracy, or the best model within a size."""

from pathlib import Path

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import ArgumentError, CompressionError
from nncfx.storage import Bytes, CompressedModel, Points, compress

torch.manual_seed(0)
INPUTS = torch.randn(256, 1, 12, 12)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    ).eval()


@torch.no_grad()
def signal(model: nn.Module) -> float:
    """Return how far the outputs are from the dense ones, in decibels."""
    wanted = net()(INPUTS)
    error = (model(INPUTS) - wanted).square().sum() / wanted.square().sum()
    return float(-10 * error.clamp(min=1e-9).log10())


def test_a_budget_of_bytes_is_kept_and_the_file_brings_the_model_back(tmp_path: Path) -> None:
    result = compress(net(), [INPUTS], budget=Bytes(6000), evaluate=signal)
    assert 5500 < result.chosen.size_bytes <= 6000  # of 59,000 in float32
    assert result.chosen.metric is not None
    assert result.chosen.metric > 10
    saved = result.save(tmp_path / "a.nncfx")
    assert saved.size_bytes == result.chosen.size_bytes == saved.path.stat().st_size
    again = nncfx.storage.load(saved.path, net())
    assert torch.equal(again(INPUTS), result.model(INPUTS))
    assert f"*{result.chosen.size_bytes:>9,}" in result.to_str()


def test_a_budget_of_points_takes_the_smallest_file_tried_within_it() -> None:
    model = net()
    before = model(INPUTS)
    result = compress(model, [INPUTS], budget=Points(70.0), evaluate=signal, trials=6)
    assert result.dense_metric == pytest.approx(90)
    within = [one for one in result.curve if one.metric >= result.dense_metric - 70]
    assert result.chosen == min(within, key=lambda one: one.size_bytes)
    assert len(within) < len(result.curve) <= 6
    assert list(result.curve) == sorted(result.curve, key=lambda one: one.size_bytes)
    assert torch.equal(model(INPUTS), before)


def shorter(**options: object) -> CompressedModel:
    return compress(net(), [INPUTS[:16]], **{"budget": Bytes(5000), **options})


def test_what_cannot_be_done_is_said() -> None:
    with pytest.raises(CompressionError, match=r"No model is within .*Bytes\(size_bytes=100\)"):
        shorter(budget=Bytes(100), trials=2)
    with pytest.raises(ArgumentError, match="needs the metric"):
        shorter(budget=Points(1.0))
    with pytest.raises(ArgumentError, match=r"budget is 0\.5"):
        shorter(budget=0.5)
    with pytest.raises(ArgumentError, match="trials is 0"):
        shorter(trials=0)
    with pytest.raises(ArgumentError, match=r"Bytes\(0\.5\)"):
        Bytes(0.5)
    with pytest.raises(ArgumentError, match=r"Points\(nan\)"):
        Points(float("nan"))

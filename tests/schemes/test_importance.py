"""Scores from gradients and from norms, by hand."""

import pytest
import torch
from torch import nn

from nncfx.errors import CompressionError
from nncfx.graph.channels import Channels
from nncfx.schemes import fisher_scores, keep_groups, norm_scale_scores, taylor_scores
from nncfx.tracing import analyze_channels


@pytest.fixture
def model() -> nn.Module:
    made = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)).eval()
    made[0].weight.data = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]])
    made[1].weight.data = torch.tensor([0.5, -2.0, 1.0])
    return made


@pytest.fixture
def channels(model: nn.Module) -> Channels:
    return analyze_channels(model, torch.zeros(1, 2))


def gradients() -> dict[str, torch.Tensor]:
    rows = torch.tensor([[1.0, -1.0], [2.0, 3.0], [4.0, 9.0]])
    return {"0.weight": rows, "0.bias": torch.zeros(3)}


def test_taylor_is_the_magnitude_of_the_sum_of_weights_times_gradients(
    model: nn.Module, channels: Channels
) -> None:
    weights = dict(model.named_parameters())
    (scores,) = taylor_scores(channels, weights, gradients(), normalize=False)
    assert scores.tolist() == [1.0, 3.0, 2.0]


def test_taylor_is_what_the_loss_loses_where_it_is_linear() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1, bias=False))
    x = torch.tensor([[1.0, 2.0]])
    loss = model(x).sum()
    loss.backward()
    weights = dict(model.named_parameters())
    slopes = {name: one.grad for name, one in weights.items() if one.grad is not None}
    (scores,) = taylor_scores(analyze_channels(model, x), weights, slopes, normalize=False)
    with torch.no_grad():
        model[0].weight[1] = 0
    assert scores[1].item() == pytest.approx(abs((model(x).sum() - loss).item()), rel=1e-4)


def test_fisher_is_half_the_sum_of_squared_products(model: nn.Module, channels: Channels) -> None:
    weights = dict(model.named_parameters())
    (scores,) = fisher_scores(channels, weights, gradients(), normalize=False)
    assert scores.tolist() == [2.5, 22.5, 2.0]


def test_a_norm_scale_is_its_magnitude(model: nn.Module, channels: Channels) -> None:
    weights = dict(model.named_parameters())
    (scores,) = norm_scale_scores(channels, weights, normalize=False)
    assert scores.tolist() == [0.5, 2.0, 1.0]


def test_without_norms_the_weights_count() -> None:
    model = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1))
    model[0].weight.data = torch.tensor([[3.0], [1.0]])
    channels = analyze_channels(model, torch.zeros(1, 1))
    (scores,) = norm_scale_scores(channels, dict(model.named_parameters()))
    assert scores.tolist() == [1.5, 0.5]


def test_scores_choose_the_groups_that_stay(model: nn.Module, channels: Channels) -> None:
    scores = norm_scale_scores(channels, dict(model.named_parameters()))
    assert [mask.tolist() for mask in keep_groups(scores, 0.34)] == [[False, True, True]]


def test_a_missing_gradient_is_named(model: nn.Module, channels: Channels) -> None:
    with pytest.raises(CompressionError, match=r"'0.weight' has no gradient"):
        taylor_scores(channels, dict(model.named_parameters()), {})

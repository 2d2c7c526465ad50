"""Scores from gradients and from norms, by hand."""

import pytest
import torch
from torch import nn

from nncfx.channels import analyze_channels
from nncfx.errors import CompressionError
from nncfx.graph.channels import Channels
from nncfx.schemes import (
    activation_scores,
    fisher_scores,
    keep_groups,
    mean_magnitude,
    mean_rank,
    nonzero_share,
    norm_scale_scores,
    taylor_scores,
)
from small_models import Function


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
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1, bias=False)).double()
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
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


def test_activity_is_measured_along_the_channels_axis() -> None:
    activation = torch.tensor([[[0.0, -2.0], [0.0, 0.0]], [[4.0, 2.0], [0.0, 1.0]]])
    assert mean_magnitude(activation).tolist() == [2.0, 0.25]
    assert mean_magnitude(activation, axis=-1).tolist() == [1.0, 1.25]
    assert nonzero_share(activation).tolist() == [0.75, 0.25]


def test_what_is_seldom_active_goes_first(channels: Channels) -> None:
    (scores,) = activation_scores(channels, {"0.weight": torch.tensor([0.5, 0.1, 0.9])})
    assert scores.tolist() == pytest.approx([1.0, 0.2, 1.8])
    assert keep_groups([scores], 0.34)[0].tolist() == [True, False, True]


def test_producers_that_share_channels_count_alike() -> None:
    activity = {"a.weight": torch.tensor([1.0, 3.0]), "b.weight": torch.tensor([5.0, 1.0])}
    model = Function(
        lambda m, x: m.c(m.a(x) + m.b(x)), a=nn.Linear(2, 2), b=nn.Linear(2, 2), c=nn.Linear(2, 1)
    )
    found = analyze_channels(model, torch.zeros(1, 2))
    (scores,) = activation_scores(found, activity, normalize=False)
    assert scores.tolist() == [3.0, 2.0]


def test_a_set_without_activity_is_an_error_with_its_weights(channels: Channels) -> None:
    with pytest.raises(CompressionError, match=r"No activity is given for '0'.*one of 0\.weight"):
        activation_scores(channels, {})


def test_a_rank_is_that_of_the_images_of_a_channel_averaged_over_the_batch() -> None:
    rows = torch.arange(3.0)
    first = torch.stack([torch.eye(3), rows[:, None] * rows])  # ranks 3 and 1
    second = torch.stack([torch.diag(torch.tensor([1.0, 1.0, 0.0])), torch.zeros(3, 3)])  # 2, 0
    assert mean_rank(torch.stack([first, second])).tolist() == [2.5, 0.5]
    assert mean_rank(torch.stack([first, second], dim=1), axis=0).tolist() == [2.5, 0.5]


@pytest.mark.parametrize(("shape", "axis"), [((2, 3, 4), 1), ((2, 3), 1), ((2, 3, 4, 4), -1)])
def test_channels_without_images_have_no_rank(shape: tuple[int, ...], axis: int) -> None:
    with pytest.raises(CompressionError, match="no image for each index"):
        mean_rank(torch.zeros(shape), axis)

"""Norms over channels let them go: the rest is normalised as if it had always been alone."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx.channels import analyze_channels
from nncfx.channels.masked_norms import LivingChannels
from nncfx.thinning import ThinRecipe, rebuild, thin

ROWS = torch.linspace(-1, 1, 4 * 3, dtype=torch.float64).reshape(4, 3)


class Rms(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


NORMS = {
    "layer norm": lambda: nn.LayerNorm(6),
    "RMS norm": lambda: nn.RMSNorm(6),
    "RMS norm by hand": lambda: Rms(6),
    "group norm of one group": lambda: nn.GroupNorm(1, 6),
    "group norm without weights": lambda: nn.GroupNorm(1, 6, affine=False),
}


def model_with(norm: nn.Module) -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 6), norm, nn.GELU(), nn.Linear(6, 2)).double().eval()
    model[3].weight.data[:, [1, 4]] = 0
    return model


@pytest.mark.parametrize("name", NORMS)
def test_channels_of_a_norm_stay_unless_it_sees_the_living_only(name: str) -> None:
    assert thin(model_with(NORMS[name]()), ROWS).removed == {}


@pytest.mark.parametrize("name", NORMS)
def test_channels_go_where_the_norm_sees_the_living_only(name: str) -> None:
    result = thin(model_with(NORMS[name]()), ROWS, living_norms=True)
    assert result.removed == {"0": (1, 4)}
    assert result.max_error <= 1e-12


def test_the_thin_norm_is_that_of_the_four_living_channels() -> None:
    torch.manual_seed(0)
    model = model_with(nn.LayerNorm(6))
    hidden = model[0](ROWS)[:, [0, 2, 3, 5]]
    normal = (hidden - hidden.mean(1, keepdim=True)) / torch.sqrt(
        hidden.var(1, keepdim=True, correction=0) + 1e-5
    )
    expected = F.gelu(normal) @ model[3].weight[:, [0, 2, 3, 5]].T + model[3].bias
    thinned = thin(model, ROWS, living_norms=True).model
    torch.testing.assert_close(thinned(ROWS), expected, rtol=1e-12, atol=1e-12)


def test_the_shape_of_the_norm_falls_and_survives_a_recipe() -> None:
    model = model_with(nn.LayerNorm(6))
    result = thin(model, ROWS, living_norms=True)
    recipe = ThinRecipe.from_json(result.recipe.to_json())
    again = rebuild(model, recipe, result.model.state_dict())
    assert again[1].normalized_shape == (4,)
    assert torch.equal(again(ROWS), result.model(ROWS))


def test_a_norm_over_several_axes_keeps_its_channels() -> None:
    model = nn.Sequential(
        nn.Conv1d(3, 6, 1), nn.LayerNorm([6, 4]), nn.Conv1d(6, 2, 1), nn.Flatten()
    )
    channels = analyze_channels(model, torch.zeros(1, 3, 4), living_norms=True)
    assert "normalises over its channels" in channels.fixed["0"]


def test_a_dead_channel_is_zero_after_a_norm_of_living_channels() -> None:
    data = torch.tensor([[1.0, 9.0, 3.0]])
    with LivingChannels({0: (1, torch.tensor([1]).numpy())}):
        normal = F.layer_norm(data, (3,), eps=0.0)
    assert normal.tolist() == [[-1.0, 0.0, 1.0]]


def test_only_the_named_call_sees_living_channels() -> None:
    data = torch.tensor([[1.0, 9.0, 3.0], [2.0, 2.0, 2.0]])
    with LivingChannels({1: (1, torch.tensor([1]).numpy())}):
        assert data.mean(1)[1].item() == 2.0
        assert torch.mean(data, 1).tolist() == [2.0, 2.0]

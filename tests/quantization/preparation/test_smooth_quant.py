"""Outliers of activations, shared with the weights that read them."""

import pytest
import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError
from nncfx.quantization.preparation.smooth_quant import smooth_layers, smoothing_scales
from small_models import Function


class Scaled(nn.Module):
    """RMS normalization as Llama writes it, and two readers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6) + 0.5)
        self.gate, self.up, self.down = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        return self.down(torch.relu(self.gate(x)) * self.up(x))


class PreNorm(nn.Module):
    """A layer norm with three readers, as in a transformer that normalizes first."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.query, self.key, self.value = (nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return self.query(y) + self.key(y) * self.value(y) + x


def with_outliers(model: nn.Module) -> nn.Module:
    """Let one channel of what each norm returns be large."""
    for module in model.modules():
        if isinstance(module, nn.LayerNorm | nn.RMSNorm | Scaled):
            module.weight.data[2] = 50.0
    return model.double().eval()


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (PreNorm(), (("PreNorm/LayerNorm[norm]/layer_norm_0", ("query", "key", "value")),)),
        (Scaled(), (("Scaled/__mul___1", ("gate", "up")),)),
        (
            nn.Sequential(nn.LayerNorm((5, 6)), nn.Linear(6, 4)),
            (("Sequential/LayerNorm[0]/layer_norm_0", ("1",)),),
        ),
        (
            nn.Sequential(nn.RMSNorm(6), nn.Linear(6, 4), nn.Linear(4, 3)),
            (
                ("Sequential/RMSNorm[0]/rms_norm_0", ("1",)),
                ("Sequential/Linear[1]/linear_0", ("2",)),
            ),
        ),
    ],
)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_the_model_computes_what_it_did(
    model: nn.Module, expected: tuple[tuple[str, tuple[str, ...]], ...], alpha: float
) -> None:
    with_outliers(model)
    inputs = torch.randn(4, 5, 6).double()
    with torch.no_grad():
        before = model(inputs)
        assert smooth_layers(model, [inputs], inputs, alpha=alpha) == expected
        torch.testing.assert_close(model(inputs), before, rtol=1e-11, atol=1e-11)


def test_with_even_shares_activations_and_weights_have_the_same_range() -> None:
    model = with_outliers(PreNorm())
    inputs = torch.randn(64, 6).double()
    smooth_layers(model, [inputs[:30], inputs[30:]], inputs)
    with torch.no_grad():
        activations = model.norm(inputs).abs().amax(0)
    weights = torch.stack([one.weight for one in (model.query, model.key, model.value)])
    torch.testing.assert_close(activations, weights.detach().abs().amax((0, 1)))


@pytest.mark.parametrize(
    "model",
    [
        # the residual path reads the norm's result as well
        Function(
            lambda m, x: m.linear(y := m.norm(x)) + y, norm=nn.LayerNorm(6), linear=nn.Linear(6, 6)
        ),
        nn.Sequential(nn.LayerNorm(6, elementwise_affine=False), nn.Linear(6, 2)),
    ],
)
def test_what_cannot_be_scaled_is_left_alone(model: nn.Module) -> None:
    inputs = torch.randn(4, 6)
    assert smooth_layers(model, [inputs], inputs) == ()


def test_by_hand_the_outlier_is_divided_by_the_root_of_the_ratio() -> None:
    found = smoothing_scales(torch.tensor([8.0]), torch.tensor([0.5]), 0.75)
    torch.testing.assert_close(found, torch.tensor([8.0**0.75 / 0.5**0.25]))


def test_a_channel_that_is_always_zero_is_left_alone() -> None:
    assert smoothing_scales(torch.zeros(1), torch.ones(1), 0.5).item() == 1


def test_no_batches_are_refused() -> None:
    with pytest.raises(ArgumentError, match="no batches to calibrate with"):
        smooth_layers(PreNorm(), [], torch.randn(2, 6))


def test_a_share_beyond_one_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"alpha is 1.5.*lies in \[0, 1\]"):
        smooth_layers(PreNorm(), [torch.randn(2, 6)], torch.randn(2, 6), alpha=1.5)

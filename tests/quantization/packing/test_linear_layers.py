"""Which modules count as linear layers."""

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.quantization.packing.linear_layers import is_turned


class Written(nn.Linear):
    """As Falcon's layers: its forward is written out."""

    @override
    def forward(self, input: Tensor) -> Tensor:
        product = input @ self.weight.T
        return product if self.bias is None else product + self.bias


class Renamed(nn.Linear):
    """Of another name alone."""


class Scaled(nn.Linear):
    @override
    def forward(self, input: Tensor) -> Tensor:
        return 1.5 * super().forward(input)


class Noisy(nn.Linear):
    @override
    def forward(self, input: Tensor) -> Tensor:
        found = super().forward(input)
        return found + torch.randn_like(found) if self.training else found


class Router(nn.Linear):
    @override
    def forward(self, input: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        scores = super().forward(input)
        return scores, scores.argmax(-1)


class Wider(nn.Linear):
    def __init__(self) -> None:
        super().__init__(8, 6)
        self.scale = nn.Parameter(torch.ones(6))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("kind", [nn.Linear, Written, Renamed])
def test_what_computes_a_linear_layer_is_one(
    kind: type[nn.Linear], device: str, *, bias: bool
) -> None:
    layer = kind(8, 6, bias=bias, device=device, dtype=torch.bfloat16).eval()
    state = torch.random.get_rng_state()
    assert is_turned(layer) is False
    # it is as before, and so is the generator
    assert layer.weight.shape == (6, 8)
    assert layer.in_features == 8
    assert not layer.training
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    "layer",
    [
        *(Scaled(8, 6), Noisy(8, 6), Router(8, 6), Wider(), nn.Conv1d(8, 6, 1), nn.Identity()),
        nn.MultiheadAttention(8, 2).out_proj,
    ],
)
def test_what_computes_another_thing_is_none(layer: nn.Module) -> None:
    assert is_turned(layer) is None

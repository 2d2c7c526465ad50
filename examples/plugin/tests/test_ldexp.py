"""Channels in front of `ldexp` can be removed."""

import nncfx_random  # noqa: F401 (attaches the rule)
import torch
from torch import Tensor, nn

import nncfx


class Scaled(nn.Module):
    """Two convolutions, and a power of two between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.ldexp(self.first(x), torch.tensor(3)))


def test_pruned_filters_go() -> None:
    inputs = torch.randn(2, 3, 8, 8)
    config = {
        "algorithm": "filter_pruning",
        "pruning_init": 0.5,
        "params": {"prune_first_conv": True, "align": 1},
    }
    _, model = nncfx.create_compressed_model(Scaled().eval(), {"compression": config}, inputs)
    masked = model(inputs)
    thinned = nncfx.thin(model, inputs).model
    assert thinned.first.out_channels == 4
    torch.testing.assert_close(thinned(inputs), masked)

"""EntropyQuantize gives weights the bits asked for."""

import copy

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError
from nncfx.schemes import EntropyQuantize
from nncfx.schemes.rate_distortion.code_lengths import estimated_bits
from nncfx.schemes.rate_distortion.entropy_grid import grid_step


def test_the_level_is_the_share_of_a_float32s_bits_that_is_saved() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 10))
    before = copy.deepcopy(model)
    EntropyQuantize().compress(model, 1 - 2 / 32)
    total = 0.0
    for layer in (model[0], model[2]):
        step = grid_step(layer.weight)
        assert step is not None
        total += estimated_bits((layer.weight.detach() / step).round())
    assert total / 22_000 == pytest.approx(2.0, rel=0.05)
    assert torch.equal(model[0].bias, before[0].bias)


def test_weights_on_grids_of_thousands_of_steps_stay() -> None:
    """Fitted anew, grids for these would have other steps."""
    generator = torch.Generator().manual_seed(39)
    once = nn.Sequential(nn.Linear(80, 160), nn.Linear(160, 130))
    for parameter in once.parameters():
        parameter.data.normal_(0, 0.3, generator=generator)
    EntropyQuantize(12.8).compress(once, 0.0)
    twice = copy.deepcopy(once)
    EntropyQuantize(12.8).compress(twice, 0.0)
    assert all(map(torch.equal, once.parameters(), twice.parameters()))


def test_bits_out_of_range_are_refused() -> None:
    with pytest.raises(ArgumentError, match="bits is 0"):
        EntropyQuantize(bits=0)

"""What masks save of multiply-accumulates."""

import pytest
import torch
from torch import nn

from nncfx.controllers.weight_macs import WeightMacs
from nncfx.tracing import trace


def counted() -> WeightMacs:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 5))
    return WeightMacs.of(model, trace(model, torch.ones(1, 3, 6, 6)))


def test_macs_are_divided_among_the_weights() -> None:
    conv, linear = 4 * 3 * 9 * 16, 64 * 5
    assert counted() == WeightMacs(
        by_weight={"0.weight": conv, "2.weight": linear},
        total=conv + linear,
    )


def test_masks_save_in_proportion_to_what_they_remove() -> None:
    macs = counted()
    half = torch.tensor([1, 1, 0, 0]).view(4, 1, 1, 1).bool()
    assert macs.saved({"0.weight": half, "0.bias": half}) == pytest.approx(
        0.5 * macs.by_weight["0.weight"] / macs.total,
    )


def test_a_model_without_macs_saves_nothing() -> None:
    assert WeightMacs(by_weight={}, total=0).saved({}) == 0

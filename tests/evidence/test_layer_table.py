"""The layer-by-layer table."""

import copy

import pytest
import torch
from torch import nn

import nncfx
from nncfx.evidence.layer_table import layer_rows
from nncfx.thinning import thin
from small_models import Function

IMAGE = torch.randn(1, 3, 6, 6)


def chain() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.Flatten(),
        nn.Linear(4 * 144, 5),
    )


def test_rows_hold_what_is_counted_by_hand() -> None:
    before = chain()
    masked = copy.deepcopy(before)
    masked[2].weight.data[:3] = 0  # nobody reads three of the eight channels
    conv, up, linear = layer_rows(before, thin(masked, IMAGE).model, IMAGE)

    assert (conv.module, conv.kind, conv.kernel) == ("0", "Conv2d", "3 x 3")
    assert (conv.in_channels_before, conv.channels_before) == (3, 8)
    assert (conv.in_channels_after, conv.channels_after) == (3, 5)
    assert (conv.macs_before, conv.macs_after) == (8 * 27 * 36, 5 * 27 * 36)
    assert conv.nonzero_after == 5 * 27 + 5
    assert (up.in_channels_before, up.in_channels_after, up.channels_after) == (8, 5, 4)
    assert (up.macs_before, up.macs_after) == (8 * 36 * 16, 5 * 36 * 16)
    assert (linear.kernel, linear.in_channels_before, linear.channels_after) == ("", 576, 5)


def test_a_layer_called_twice_counts_twice() -> None:
    def twice() -> nn.Module:
        return Function(lambda m, x: m.fc(m.fc(x)), fc=nn.Linear(4, 4))

    (row,) = layer_rows(twice(), twice(), torch.ones(1, 4))
    assert row.macs_before == 2 * 16


def test_grouped_convolutions_count_their_own_inputs_only() -> None:
    model = nn.Conv2d(6, 6, 1, groups=3)
    (row,) = layer_rows(model, model, torch.ones(1, 6, 2, 2))
    assert (row.in_channels_before, row.macs_before) == (6, 6 * 2 * 4)


@pytest.mark.parametrize("bias", [True, False])
def test_a_weight_behind_hooks_is_that_of_its_layer(bias: bool) -> None:
    before = nn.Sequential(nn.Conv2d(3, 4, 3, bias=bias), nn.ReLU(), nn.Flatten())
    after = nncfx.quantize(copy.deepcopy(before), [IMAGE])
    (row,) = layer_rows(before, after, IMAGE)
    assert row.macs_before == row.macs_after == 4 * 27 * 16
    assert row.channels_after == 4


def test_times_go_to_their_layers() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    rows = layer_rows(model, model, torch.ones(1, 2), ({"0": 1.5}, {"1": 0.5}))
    assert [(row.time_before_ms, row.time_after_ms) for row in rows] == [(1.5, None), (None, 0.5)]


def test_a_layer_that_is_gone_has_zeros() -> None:
    before = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    after = nn.Sequential(nn.Linear(2, 2), nn.Identity())
    assert layer_rows(before, after, torch.ones(1, 2))[1].channels_after == 0

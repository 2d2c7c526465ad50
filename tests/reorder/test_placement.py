"""Computed channels among zeros."""

import torch
from torch import nn

from nncfx.reorder.placement import ChannelPlacement, place_after


def test_neighbours_are_padded_and_others_spread() -> None:
    data = torch.randn(2, 2, 3, 3)
    for positions in ([1, 2], [0, 3], [3, 4]):
        expected = torch.zeros(2, 5, 3, 3)
        expected[:, positions] = data
        assert torch.equal(ChannelPlacement(-3, positions, 5).placed(data), expected)


def test_the_last_axis_is_placed_alike() -> None:
    data = torch.randn(4, 2)
    expected = torch.zeros(4, 6)
    expected[:, [1, 4]] = data
    assert torch.equal(ChannelPlacement(-1, [1, 4], 6).placed(data), expected)


def test_infinities_stay_where_they_are() -> None:
    data = torch.tensor([[float("inf"), 1.0]])
    placed = ChannelPlacement(-1, [0, 2], 3).placed(data)
    assert placed.tolist() == [[float("inf"), 0.0, 1.0]]


def test_a_layer_puts_out_all_channels_and_keeps_its_state() -> None:
    layer = nn.Conv2d(3, 2, 1)
    keys = list(layer.state_dict())
    place_after(layer, -3, [0, 3], 4)
    assert list(layer.state_dict()) == keys
    data = torch.randn(1, 3, 2, 2)
    computed = nn.functional.conv2d(data, layer.weight, layer.bias)
    assert torch.equal(layer(data)[:, [0, 3]], computed)
    assert not layer(data)[:, [1, 2]].any()

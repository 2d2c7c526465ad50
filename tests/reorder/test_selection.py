"""Selections in front of layers."""

import torch
from torch import nn

from nncfx.reorder.selection import ChannelSelection, select_before


def test_neighbours_are_a_view_and_others_a_copy() -> None:
    data = torch.randn(1, 6, 2, 2)
    view = ChannelSelection(-3, [2, 3, 4]).selected(data)
    copied = ChannelSelection(-3, [0, 3, 4]).selected(data)
    assert torch.equal(view, data[:, 2:5])
    assert view.data_ptr() == data[:, 2:].data_ptr()
    assert view.is_contiguous()
    assert torch.equal(copied, data[:, [0, 3, 4]])


def test_a_layer_reads_only_its_channels_however_it_is_called() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(2, 3)
    select_before(layer, -1, [1, 4])
    data = torch.randn(5, 7, 6)
    expected = nn.functional.linear(data[..., [1, 4]], layer.weight, layer.bias)
    assert torch.equal(layer(data), expected)
    assert torch.equal(layer(input=data), expected)


def test_a_selection_adds_nothing_to_the_state() -> None:
    layer = nn.Conv2d(2, 3, 1)
    keys = list(layer.state_dict())
    select_before(layer, -3, [0, 2])
    assert list(layer.state_dict()) == keys


def test_a_selection_says_what_it_takes() -> None:
    assert str(ChannelSelection(-3, [2, 3])) == "ChannelSelection(2:4)"
    assert str(ChannelSelection(-3, [2, 5])) == "ChannelSelection(2 channels)"


def test_positions_follow_their_layer_to_another_device() -> None:
    layer = nn.Conv2d(2, 3, 1)
    select_before(layer, -3, [0, 2])
    moved = layer.to("meta")
    assert moved(torch.empty(1, 4, 5, 5, device="meta")).shape == (1, 3, 5, 5)

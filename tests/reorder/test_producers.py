"""Layers that make channels of zeros."""

import torch
from torch import nn

from nncfx.channels import analyze_channels
from nncfx.reorder.producers import Producer, producers
from nncfx.reorder.segments import ChannelBlock
from nncfx.tracing import trace


def found(model: nn.Module, inputs: torch.Tensor) -> list[Producer]:
    return producers(model, analyze_channels(model, inputs), trace(model, inputs))


def pair() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 2, 1))


def test_a_layer_without_zero_rows_is_none() -> None:
    assert found(pair(), torch.zeros(1, 3, 8, 8)) == []


def test_a_row_is_zero_only_with_its_bias() -> None:
    model = pair()
    model[0].weight.data[[1, 2]] = 0
    model[0].bias.data[1] = 0
    (one,) = found(model, torch.zeros(2, 3, 8, 8))
    assert one.live.tolist() == [True, False, True, True]
    assert (one.layer, one.weight, one.bias) == ("0", "0.weight", "0.bias")
    assert (one.pixels, one.macs) == (2 * 64, 2 * 64 * 27)


def test_the_order_sees_it_as_a_reader_of_what_it_makes() -> None:
    model, inputs = pair(), torch.zeros(1, 3, 8, 8)
    model[0].weight.data[[1, 3]] = 0
    model[0].bias.data[[1, 3]] = 0
    channels = analyze_channels(model, inputs)
    (one,) = producers(model, channels, trace(model, inputs))
    reader = one.reader(channels)
    assert reader is not None
    assert reader.blocks == (ChannelBlock("0", 4),)
    assert reader.keep == {("0", 0), ("0", 2)}


def test_a_layer_that_makes_the_output_of_the_model_does_not_move() -> None:
    model, inputs = nn.Sequential(nn.Linear(3, 4)), torch.zeros(1, 3)
    model[0].weight.data[1] = 0
    model[0].bias.data[1] = 0
    channels = analyze_channels(model, inputs)
    (one,) = producers(model, channels, trace(model, inputs))
    assert one.reader(channels) is None

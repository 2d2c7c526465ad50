"""Layers that read channels, and what is known of them."""

import torch
from torch import nn

from nncfx.channels import analyze_channels
from nncfx.reorder.consumers import Consumer, consumers
from nncfx.reorder.segments import ChannelBlock
from nncfx.tracing import trace


def found(model: nn.Module, inputs: torch.Tensor) -> dict[str, Consumer]:
    channels = analyze_channels(model, inputs, living_norms=True)
    listed = consumers(model, channels, trace(model, inputs))
    return {one.weight: one for one in listed}


def test_a_convolution_reads_pixels_and_computes_macs_per_channel() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 6, 3, padding=1, stride=2))
    one = found(model, torch.zeros(2, 3, 8, 8))["1.weight"]
    assert one.layers == ("1",)
    assert one.pixels == 2 * 64
    assert one.macs == 2 * 16 * 6 * 9
    assert (one.axis, one.weight_axis) == (-3, 1)
    assert not one.is_sliced_free  # the batch is 2


def test_a_batch_of_one_is_sliced_free_and_rows_of_tokens_are_not() -> None:
    convolutions = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 6, 1))
    assert found(convolutions, torch.zeros(1, 3, 8, 8))["1.weight"].is_sliced_free
    linears = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    assert found(linears, torch.zeros(1, 3))["1.weight"].is_sliced_free
    assert not found(linears, torch.zeros(1, 5, 3))["1.weight"].is_sliced_free


def test_columns_of_zeros_are_not_live_and_one_is_where_all_are_zero() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[1].weight.data[:, [0, 3]] = 0
    assert found(model, torch.zeros(1, 3))["1.weight"].live.tolist() == [False, True, True, False]
    model[1].weight.data.zero_()
    assert found(model, torch.zeros(1, 3))["1.weight"].live.tolist() == [True, False, False, False]


def test_layers_whose_input_cannot_be_selected_have_none() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(3, 4)
            self.weight = nn.Parameter(torch.randn(2, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(self.stem(x), self.weight)

    assert found(Functional(), torch.zeros(1, 3))["weight"].layers == ()


def test_a_concatenation_is_read_as_blocks_and_inputs_hold_their_place() -> None:
    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(2, 3, 1), nn.Conv2d(2, 2, 1)
            self.both = nn.Conv2d(7, 1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.both(torch.cat([self.a(x), x, self.b(x)], 1))

    model, inputs = Joined(), torch.zeros(1, 2, 4, 4)
    model.both.weight.data[:, [0, 3]] = 0
    channels = analyze_channels(model, inputs)
    (one,) = consumers(model, channels, trace(model, inputs))
    reader = one.reader(channels)
    assert reader is not None
    held = [ChannelBlock("both.weight[3]", 1), ChannelBlock("both.weight[4]", 1)]
    assert list(reader.blocks) == [ChannelBlock("a", 3), *held, ChannelBlock("b", 2)]
    assert reader.keep == {("a", 1), ("a", 2), ("both.weight[4]", 0), ("b", 0), ("b", 1)}


def test_a_flatten_costs_every_pixel_of_a_channel() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten(), nn.Linear(4 * 9, 2))
    inputs = torch.zeros(1, 3, 3, 3)
    channels = analyze_channels(model, inputs)
    (one,) = consumers(model, channels, trace(model, inputs))
    reader = one.reader(channels)
    assert reader is not None
    assert reader.blocks == (ChannelBlock("0", 4),)
    assert reader.cost == 9


def test_channels_that_stand_apart_in_what_is_read_have_no_reader() -> None:
    class PixelsFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(2, 3, 1), nn.Linear(3 * 16, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.conv(x).permute(0, 2, 3, 1).flatten(1))

    model, inputs = PixelsFirst(), torch.zeros(1, 2, 4, 4)
    channels = analyze_channels(model, inputs)
    (one,) = consumers(model, channels, trace(model, inputs))
    assert one.reader(channels) is None

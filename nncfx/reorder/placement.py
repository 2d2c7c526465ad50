"""The module that puts computed channels among zeros, behind the layer that computes them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn
from typing_extensions import override

_NAME = "channel_placement"


@final
class ChannelPlacement(nn.Module):
    """Widens what a layer has computed with channels of zeros.

    It stands as a forward hook, so that the layer keeps its class, its name and its place in the
    `state_dict`, to which this adds nothing.

    Attributes:
        axis: The axis of the channels, from the end.
        before: How many zeros stand before the computed channels.
        after: How many stand after them.
        places: For each channel of the result its number among the computed ones, that of a
            channel of zeros behind them all where there is none; None where the computed ones
            are neighbours.
    """

    places: Tensor | None

    def __init__(self, axis: int, positions: Sequence[int], width: int) -> None:
        super().__init__()
        self.axis = axis
        self.before = positions[0]
        self.after = width - positions[-1] - 1
        is_run = all(after == before + 1 for before, after in pairwise(positions))
        places = None
        if not is_run:
            places = torch.full((width,), len(positions), device="cpu")
            places[list(positions)] = torch.arange(len(positions), device="cpu")
        self.register_buffer("places", places, persistent=False)

    @override
    def forward(self, layer: nn.Module, args: object, output: Tensor) -> Tensor:
        """Return the output of `layer` with all its channels."""
        return self.placed(output)

    def placed(self, data: Tensor) -> Tensor:
        """Return `data` with zeros where nothing was computed."""
        if self.places is None:
            inner = (0, 0) * (-self.axis - 1)
            return nn.functional.pad(data, (*inner, self.before, self.after))
        zero = torch.zeros_like(data.narrow(self.axis, 0, 1))
        return torch.cat([data, zero], self.axis).index_select(self.axis, self.places)


def place_after(layer: nn.Module, axis: int, positions: Sequence[int], width: int) -> None:
    """Let `layer`, which computes the channels at `positions`, put out `width`, in place."""
    placement = ChannelPlacement(axis, positions, width).to(next(layer.parameters()).device)
    layer.add_module(_NAME, placement)
    layer.register_forward_hook(placement)

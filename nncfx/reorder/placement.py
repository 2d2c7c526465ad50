"""A module that inserts zero channels after a layer that computes only the others."""

from collections.abc import Sequence
from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn
from typing_extensions import override

_NAME = "channel_placement"


@final
class ChannelPlacement(nn.Module):
    """Extends the output of a layer by channels of zeros.

    It is a forward hook, so the layer keeps its class, its name and its place in the `state_dict`,
    which does not change.

    Attributes:
        axis: The axis of the channels, counted from the end.
        before: Number of zero channels before the computed channels.
        after: Number of zero channels after them.
        places: For each channel of the result the index of the computed channel, or their number
            for a channel of zeros; None if the computed channels are adjacent.
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
        """Return `data` with zeros for channels that were not computed."""
        if self.places is None:
            inner = (0, 0) * (-self.axis - 1)
            return nn.functional.pad(data, (*inner, self.before, self.after))
        zero = torch.zeros_like(data.narrow(self.axis, 0, 1))
        return torch.cat([data, zero], self.axis).index_select(self.axis, self.places)


def place_after(layer: nn.Module, axis: int, positions: Sequence[int], width: int) -> None:
    """Make `layer`, which computes the channels at `positions`, output `width`, in place."""
    placement = ChannelPlacement(axis, positions, width).to(next(layer.parameters()).device)
    layer.add_module(_NAME, placement)
    layer.register_forward_hook(placement)

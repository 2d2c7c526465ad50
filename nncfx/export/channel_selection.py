"""The module that picks the channels a layer reads, in front of that layer."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, final

import torch
from torch import Tensor, nn
from typing_extensions import override

__all__ = ["ChannelSelection", "select_before"]

_NAME = "channel_selection"


@final
class ChannelSelection(nn.Module):
    """Hands a layer some channels of its input: a slice where they are neighbours, else a gather.

    It stands as a forward pre-hook, so that the layer keeps its class, its name and its place in
    the `state_dict`, to which this adds nothing.

    Attributes:
        axis: The axis of the channels, from the end.
        start: The first channel taken.
        length: How many channels are taken.
        positions: Where they stand, ascending; None for a slice.
    """

    positions: Tensor | None

    def __init__(self, axis: int, positions: Sequence[int]) -> None:
        super().__init__()
        self.axis = axis
        self.start = positions[0]
        self.length = len(positions)
        is_slice = all(after == before + 1 for before, after in pairwise(positions))
        index = None if is_slice else torch.tensor(positions)
        self.register_buffer("positions", index, persistent=False)

    @override
    def forward(
        self,
        layer: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the call of `layer` with the channels selected."""
        if args:
            return (self.selected(args[0]), *args[1:]), kwargs
        return args, {**kwargs, "input": self.selected(kwargs["input"])}

    def selected(self, data: Tensor) -> Tensor:
        """Return the channels of `data`; a view for a slice, a copy for a gather."""
        if self.positions is None:
            return data.narrow(self.axis, self.start, self.length)
        return data.index_select(self.axis, self.positions)

    @override
    def extra_repr(self) -> str:
        if self.positions is None:
            return f"{self.start}:{self.start + self.length}"
        return f"{self.length} channels"


def select_before(layer: nn.Module, axis: int, positions: Sequence[int]) -> None:
    """Let `layer` read only the channels at `positions` of its input, in place."""
    selection = ChannelSelection(axis, positions).to(next(layer.parameters()).device)
    layer.add_module(_NAME, selection)
    layer.register_forward_pre_hook(selection, with_kwargs=True)

"""A module that selects the channels that a layer reads, before that layer."""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from itertools import pairwise
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary
from typing_extensions import override

_NAME = "channel_selection"


@final
class SharedGathers:
    """Gathers shared by several layers, kept alive only while their source tensor is."""

    def __init__(self) -> None:
        self._gathered: MutableMapping[Tensor, Tensor] = WeakIdKeyDictionary()

    def of(self, data: Tensor, gather: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the result of `gather` for `data`, computed in the first call for it."""
        if torch.compiler.is_compiling():  # the compiler finds duplicate computations
            return gather(data)
        found = self._gathered.get(data)
        if found is None:
            found = self._gathered[data] = gather(data)
        return found

    @override
    def __reduce__(self) -> tuple[type["SharedGathers"], tuple[()]]:
        # cached gathers belong to a forward of the original, not of the copy
        return SharedGathers, ()


@final
class ChannelSelection(nn.Module):
    """Passes some channels of a layer's input: a slice if they are adjacent, else a gather.

    It is a forward pre-hook, so the layer keeps its class, its name and its place in the
    `state_dict`, which does not change.

    Attributes:
        axis: The axis of the channels, counted from the end.
        start: The first selected channel.
        length: Number of selected channels.
        positions: Their positions, ascending; None for a slice.
    """

    positions: Tensor | None

    def __init__(
        self, axis: int, positions: Sequence[int], shared: SharedGathers | None = None
    ) -> None:
        super().__init__()
        self.axis = axis
        self._shared = shared
        self.start = positions[0]
        self.length = len(positions)
        is_slice = all(after == before + 1 for before, after in pairwise(positions))
        index = None if is_slice else torch.tensor(positions, device="cpu")
        self.register_buffer("positions", index, persistent=False)

    @override
    def forward(
        self, layer: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments for `layer` with the channels selected."""
        if args:
            return (self.selected(args[0]), *args[1:]), kwargs
        return args, {**kwargs, "input": self.selected(kwargs["input"])}

    def selected(self, data: Tensor) -> Tensor:
        """Return the channels of `data`; a view for a slice, a copy for a gather."""
        if self.positions is None:
            return data.narrow(self.axis, self.start, self.length)
        if self._shared is None:
            return self._gathered(data)
        return self._shared.of(data, self._gathered)

    def _gathered(self, data: Tensor) -> Tensor:
        assert self.positions is not None  # noqa: S101 (a slice is not gathered)
        return data.index_select(self.axis, self.positions)

    @override
    def extra_repr(self) -> str:
        if self.positions is None:
            return f"{self.start}:{self.start + self.length}"
        return f"{self.length} channels"


def select_before(
    layer: nn.Module, axis: int, positions: Sequence[int], shared: SharedGathers | None = None
) -> None:
    """Make `layer` read only the channels at `positions` of its input, in place.

    Args:
        layer: a convolution or a linear layer that already has the narrow width.
        axis: of the channels, counted from the end.
        positions: ascending.
        shared: for layers that read the same channels of the same tensor.
    """
    selection = ChannelSelection(axis, positions, shared).to(next(layer.parameters()).device)
    layer.add_module(_NAME, selection)
    layer.register_forward_pre_hook(selection, with_kwargs=True)

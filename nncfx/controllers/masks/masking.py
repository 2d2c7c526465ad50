"""Masks on weights: the hook that applies one, and the set of them that a controller moves."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.controllers.base.weights import aliases, raw_parameters
from nncfx.errors import CompressionError
from nncfx.tracing import Insertion

__all__ = ["MaskHook", "MaskSet"]


@final
class MaskHook(nn.Module):
    """Multiplies a weight by a mask of zeros and ones.

    All ones leave the weight bitwise as it is. The masked weight keeps its value and gets no
    gradient from the task, so that it can come back.

    Attributes:
        mask: Broadcastable to the weight, of its dtype: a bool mask would take three times as
            long to multiply.
    """

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    @classmethod
    def along(cls, parameter: Tensor, axes: Collection[int]) -> "MaskHook":
        """Return a hook of ones for `parameter` whose mask can differ along `axes` only."""
        shape = [size if axis in axes else 1 for axis, size in enumerate(parameter.shape)]
        return cls(torch.ones(shape, dtype=parameter.dtype, device=parameter.device))

    @override
    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.mask

    @override
    def train(self, mode: bool = True) -> Self:
        """Set the mode; in evaluation mode the mask is what is claimed, and must be one.

        Raises:
            CompressionError: the mask is no longer of zeros and ones.
        """
        super().train(mode)
        if not mode and not self.mask.is_meta:
            fractions = self.mask[(self.mask != 0) & (self.mask != 1)]
            if fractions.numel():
                raise CompressionError(
                    f"A mask holds {float(fractions[0]):.3g}, and {fractions.numel()} such values "
                    "in all, which removes nothing: it was averaged with the weights, as by "
                    "AveragedModel(use_buffers=True). Call nncfx.controllers.keep_hooks(averaged, "
                    "model) after averaging, or leave use_buffers False.",
                )
        return self


@final
class MaskSet:
    """The masks of one algorithm, by parameter; a parameter read at several places has several.

    Attributes:
        hooks: The mask hooks by dotted parameter name.
    """

    def __init__(self, hooks: Iterable[tuple[str, MaskHook]]) -> None:
        grouped: dict[str, list[MaskHook]] = {}
        for parameter, hook in hooks:
            grouped.setdefault(parameter, []).append(hook)
        self.hooks: Mapping[str, Sequence[MaskHook]] = grouped

    @classmethod
    def of(cls, model: nn.Module, insertions: Iterable[Insertion]) -> "MaskSet":
        """Return the masks among the hooks of `insertions`, by the parameter at their site."""
        names = aliases(model)
        return cls(
            (names[str(insertion.site)][0], insertion.hook)
            for insertion in insertions
            if isinstance(insertion.hook, MaskHook)
        )

    def set(self, masks: Mapping[str, Tensor]) -> None:
        """Put `masks` (bool, True where the entry stays) in place; without one, all stays.

        Raises:
            CompressionError: there is a mask for a parameter without a hook.
        """
        homeless = sorted(set(masks) - set(self.hooks))
        if homeless:
            raise CompressionError(
                f"There are masks for {homeless}, where no hook stands; the masked model would "
                "not be the thinned one. Plan the algorithm anew on this model.",
            )
        with torch.no_grad():
            for parameter, hooks in self.hooks.items():
                for hook in hooks:
                    if parameter in masks:
                        hook.mask.copy_(masks[parameter].expand_as(hook.mask))
                    else:
                        hook.mask.fill_(1)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Let all entries stay within the context, and put the masks back behind it."""
        masks = {name: hooks[0].mask.clone() for name, hooks in self.hooks.items()}
        self.set({})
        try:
            yield
        finally:
            self.set(masks)

    def removed(self, parameter: str, shape: torch.Size) -> int:
        """Return how many entries of `parameter`, which has `shape`, are masked."""
        mask = self.hooks[parameter][0].mask
        return int((mask == 0).expand(shape).sum())

    def all_removed(self, model: nn.Module) -> dict[str, int]:
        """Return how many entries of each masked parameter of `model` are masked."""
        parameters = raw_parameters(model)
        return {name: self.removed(name, parameters[name].shape) for name in self.hooks}

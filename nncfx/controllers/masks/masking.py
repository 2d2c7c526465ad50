"""The hook that masks a weight, and the set of masks of a controller."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.controllers.base.weights import aliases, raw_parameters
from nncfx.controllers.masks.exact_hook import ExactHook, fractions
from nncfx.controllers.masks.packed_bits import (
    bit_count,
    mask_in_place,
    masked,
    packed_bits,
    unpacked_bits,
)
from nncfx.errors import CompressionError
from nncfx.lazy import LazyMapping
from nncfx.tracing import Insertion

_PACKED: Final = 1 << 18
"""Masks of at least this size are stored as bits; for smaller ones unpacking is too slow."""


@final
class MaskHook(ExactHook):
    """Multiplies a weight by a mask of zeros and ones.

    A mask of ones leaves the weight bitwise unchanged. A masked entry keeps its stored value and
    gets no gradient from the task, so it can come back.

    A mask of fewer than 262,144 entries is a buffer `mask` of the weight's dtype, which multiplies
    fastest; a larger mask takes 1/32 of that, as buffers `bits` (see `packed_bits`) and `count`,
    the number of ones. States with a `mask` of any size can be loaded.

    Attributes:
        shape: The shape of the mask, broadcastable to the weight.
    """

    shape: torch.Size
    mask: Tensor
    bits: Tensor
    count: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.shape = mask.shape
        if mask.numel() < _PACKED:
            self.register_buffer("mask", mask.clone(memory_format=torch.contiguous_format))
            return
        self.register_buffer("bits", packed_bits(mask))
        self.register_buffer("count", bit_count(self.bits))

    @classmethod
    def along(cls, parameter: Tensor, axes: Collection[int]) -> "MaskHook":
        """Return a hook of ones for `parameter` whose mask varies only along `axes`."""
        shape = [size if axis in axes else 1 for axis, size in enumerate(parameter.shape)]
        return cls(torch.ones((), dtype=parameter.dtype, device=parameter.device).expand(shape))

    @property
    def is_packed(self) -> bool:
        """Whether the mask is stored as bits."""
        return "bits" in self._buffers

    def keep(self) -> Tensor:
        """Return which entries stay, as a new bool tensor of `shape`."""
        if self.is_packed:
            return unpacked_bits(self.bits, self.shape).view(torch.bool)
        return self.mask != 0

    def put(self, keep: Tensor | None) -> None:
        """Keep the entries where `keep`, broadcastable to `shape`, is not 0; all if None."""
        one = torch.ones((), device=next(self.buffers()).device)
        kept = (one if keep is None else keep).expand(self.shape)
        if self.is_packed:
            self.bits.copy_(packed_bits(kept))
            self.count.copy_(bit_count(self.bits))
        else:
            self.mask.copy_(kept)

    def zeros(self) -> int:
        """Return the number of zeros in the mask of `shape`."""
        if self.is_packed:
            return self.shape.numel() - int(self.count)
        return int((self.mask == 0).sum())

    @override
    def forward(self, weight: Tensor) -> Tensor:
        if not self.is_packed:
            # FSDP may gather the weight in another dtype
            return weight * self.mask.to(weight.dtype)
        if weight.shape == self.shape:
            return masked(weight, self.bits)
        return weight * unpacked_bits(self.bits, self.shape)

    def write_to(self, weight: Tensor) -> None:
        """Replace `weight` by what `forward` returns for it."""
        if self.is_packed and weight.shape == self.shape and weight.is_contiguous():
            mask_in_place(weight, self.bits)
        else:
            weight.detach().copy_(self(weight))

    @override
    def _fault(self) -> str:
        if not self.is_packed:
            return fractions(self.mask)
        found, count = int(bit_count(self.bits)), int(self.count)
        return "" if found == count else f"A mask holds {found:,} ones where {count:,} were set"

    @override
    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        old = state_dict.get(f"{prefix}mask")
        # masks of earlier files; for other shapes torch reports the mismatch
        if self.is_packed and isinstance(old, Tensor) and old.shape == self.shape:
            bits = packed_bits(state_dict.pop(f"{prefix}mask"))
            state_dict |= {f"{prefix}bits": bits, f"{prefix}count": bit_count(bits)}
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @override
    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]  # torch
        if "shape" not in vars(self):  # pickled before masks were packed
            mask = self._buffers.pop("mask")
            assert mask is not None  # noqa: S101 (it always was there)
            fresh = MaskHook(mask)
            self.shape, self._buffers = fresh.shape, fresh._buffers


@final
class PresentMasks(LazyMapping[Sequence[MaskHook], Tensor]):
    """The masks of hooks by name, bool and of the hook's shape."""

    @override
    def _made(self, source: Sequence[MaskHook]) -> Tensor:
        return source[0].keep()


@final
class MaskSet:
    """The masks of one algorithm by parameter; a parameter read at several sites has several.

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
        """Set the masks (bool, True for entries that stay); all entries stay without a mask.

        Each mask is read once, one after the other, so a lazy mapping can create them.

        Raises:
            CompressionError: there is a mask for a parameter without a hook.
        """
        homeless = sorted(set(masks) - set(self.hooks))
        if homeless:
            raise CompressionError(
                f"There are masks for {homeless}, where there is no hook; the masked model would "
                "not be the thinned one. Plan the algorithm again on this model."
            )
        with torch.no_grad():
            for parameter, hooks in self.hooks.items():
                mask = masks.get(parameter)
                for hook in hooks:
                    hook.put(mask)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Lift all masks within the context, and restore them on exit."""
        masks = dict(self.present())
        self.set({})
        try:
            yield
        finally:
            self.set(masks)

    def present(self) -> PresentMasks:
        """Return a view of the masks by parameter, broadcastable to it."""
        return PresentMasks(self.hooks)

    def removed(self, parameter: str, shape: torch.Size) -> int:
        """Return the number of masked entries of `parameter`, which has `shape`."""
        hook = self.hooks[parameter][0]
        return hook.zeros() * shape.numel() // max(hook.shape.numel(), 1)

    def all_removed(self, model: nn.Module) -> dict[str, int]:
        """Return the number of masked entries of each parameter of `model` with masks."""
        parameters = raw_parameters(model)
        return {name: self.removed(name, parameters[name].shape) for name in self.hooks}

"""Pruning of single weights by magnitude: masks, or zeros in place."""

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor
from typing_extensions import override

from nncfx.errors import CompressionError
from nncfx.lazy import LazyMapping
from nncfx.schemes.masks.exact_masks import MaskScope, ranked_parts
from nncfx.schemes.masks.ranking import Largest, Magnitudes


def magnitude_mask(
    tensors: Mapping[str, Tensor],
    level: float,
    *,
    scope: MaskScope = "global",
    minimum: int = 1,
    normed: bool = False,
) -> dict[str, Tensor]:
    """Return, for each tensor, the mask of its entries of largest magnitude.

    Exactly `n - floor(level * n)` entries are kept, where n counts all tensors together (scope
    "global") or each by itself ("local"). Level 0 keeps everything. Among equal magnitudes the
    earlier is kept: tensors in the order of the mapping, entries in row-major order.

    Args:
        tensors: Weights by name, any shapes and floating dtypes.
        level: Fraction to remove, in [0, 1).
        scope: One ranking over all tensors, or one for each.
        minimum: The smallest number of entries of each tensor to keep (all, of a smaller tensor),
            so that no tensor is emptied; if these exceed the count, more are kept than the level
            asks.
        normed: Divide each tensor by its Euclidean norm before ranking (NNCF's `normed_abs`), so
            that tensors of small entries are not zeroed first. All-zero tensors are not divided.

    Raises:
        ArgumentError: `level`, `scope` or `minimum` is out of range.
        CompressionError: a tensor has NaN entries, which have no rank.

    >>> magnitude_mask({"w": torch.tensor([1.0, -3.0, 2.0, 2.0])}, 0.5)
    {'w': tensor([False,  True,  True, False])}
    """
    return dict(MagnitudeMasks(tensors, level, scope=scope, minimum=minimum, normed=normed))


@final
class MagnitudeMasks(LazyMapping[tuple[Largest, torch.Size], Tensor]):
    """The masks that `magnitude_mask` returns: ranked immediately, each built on access."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        level: float,
        *,
        scope: MaskScope = "global",
        minimum: int = 1,
        normed: bool = False,
    ) -> None:
        """Rank the entries; the arguments and the errors are those of `magnitude_mask`."""
        parts = list(_magnitudes(tensors, is_normed=normed).values())
        ranked = ranked_parts(parts, level, scope, minimum)
        pairs = zip(tensors.items(), ranked, strict=True)
        super().__init__({name: (one, tensor.shape) for (name, tensor), one in pairs})

    @override
    def _made(self, source: tuple[Largest, torch.Size]) -> Tensor:
        found, shape = source
        return found.mask().view(shape)


def zero_smallest(
    tensors: Mapping[str, Tensor],
    level: float,
    *,
    scope: MaskScope = "global",
    minimum: int = 1,
    normed: bool = False,
) -> None:
    """Set to zero, in place, the entries masked by `magnitude_mask`, without building masks.

    Temporary memory is a million entries at a time. Arguments and errors are those of
    `magnitude_mask`; tensors must be finite (0 times infinity is NaN), and none is changed when an
    error is raised.

    >>> weight = torch.tensor([1.0, -3.0, 2.0, 2.0])
    >>> zero_smallest({"w": weight}, 0.5)
    >>> weight
    tensor([ 0., -3.,  2.,  0.])
    """
    parts = list(_magnitudes(tensors, is_normed=normed).values())
    with torch.no_grad():
        for tensor, found in zip(
            tensors.values(), ranked_parts(parts, level, scope, minimum), strict=True
        ):
            start, flat = 0, tensor.detach().reshape(-1)
            for mask in found.masks():
                flat[start : start + len(mask)].mul_(mask)
                start += len(mask)
            if flat.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr():
                tensor.copy_(flat.view(tensor.shape))


def _magnitudes(tensors: Mapping[str, Tensor], *, is_normed: bool) -> dict[str, Magnitudes]:
    found = {name: Magnitudes(one, is_normed=is_normed) for name, one in tensors.items()}
    for name, one in found.items():
        if one.has_nan():
            raise CompressionError(
                f"'{name}' has NaN entries, which have no magnitude to rank by. Train the model "
                "to finite weights first (a lower learning rate, or gradient clipping)."
            )
    return found

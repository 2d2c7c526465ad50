"""N:M masks."""

import itertools
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from nncfx.errors import ArgumentError
from nncfx.pieces import in_pieces
from nncfx.schemes.masks.exact_masks import check_at_least

_SMALL: Final = 16
"""Up to this group size, comparing all pairs is faster than sorting."""


def nm_mask(weight: Tensor, n: int, m: int, axis: int = 1) -> Tensor:
    """Return the mask that keeps the `n` largest of every `m` neighbours along `axis`.

    Of equal magnitudes the earlier one stays.

    Args:
        weight: For instance `o x i x *k`, with i a multiple of `m`.
        n: Number of entries to keep per group; `m` or more keeps all.
        m: Size of a group.
        axis: The axis of the groups, from 0.

    Raises:
        ArgumentError: `n` is negative, `m` is below 1, the axis does not exist, or its extent is
            not a multiple of `m`.

    >>> nm_mask(torch.tensor([[1.0, -4.0, 3.0, 2.0]]), 2, 4)
    tensor([[False,  True,  True, False]])
    """
    check_at_least("n", n, 0)
    check_at_least("m", m, 1)
    if axis >= weight.ndim or weight.shape[axis] % m:
        raise ArgumentError(
            f"A weight of shape {tuple(weight.shape)} has no axis {axis} of a multiple of {m}, "
            "which groups of that size need. Leave the layer out."
        )
    moved = weight.detach().movedim(axis, -1)
    groups = moved.reshape(-1, m)
    mask = torch.empty_like(groups, dtype=torch.bool, memory_format=torch.contiguous_format)
    if m > _SMALL:
        order = groups.abs().sort(dim=-1, descending=True, stable=True).indices
        mask.zero_().scatter_(-1, order[:, :n], value=True)
    else:
        for piece in in_pieces(*groups.unbind(-1), *mask.unbind(-1)):
            _mark(piece[:m], piece[m:], n)
    return mask.reshape(moved.shape).movedim(-1, axis).contiguous()


def _mark(weights: Sequence[Tensor], masks: Sequence[Tensor], n: int) -> None:
    """Fill `masks` with whether each entry is among the `n` largest across `weights`."""
    sizes = [one.abs() for one in weights]
    # earlier weights beat a weight unless they are smaller, and later ones if they are larger
    beaten = [torch.full_like(one, at, dtype=torch.int8) for at, one in enumerate(sizes)]
    for early, late in itertools.combinations(range(len(sizes)), 2):
        is_larger = (sizes[late] > sizes[early]).view(torch.int8)
        beaten[early] += is_larger
        beaten[late] -= is_larger
    for mask, count in zip(masks, beaten, strict=True):
        torch.lt(count, n, out=mask)

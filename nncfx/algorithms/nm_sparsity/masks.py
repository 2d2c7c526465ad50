"""The N:M mask."""

import torch
from torch import Tensor

from nncfx.errors import ArgumentError
from nncfx.schemes.masks.exact_masks import check_at_least


def nm_mask(weight: Tensor, n: int, m: int, axis: int = 1) -> Tensor:
    """Return the mask that keeps the `n` largest of every `m` neighbours along `axis`.

    Of equal magnitudes the earlier stays.

    Args:
        weight: Such as `o x i x *k`, with i a multiple of `m`.
        n: How many stay; `m` or more is all.
        m: How many make a group.
        axis: The axis of the groups, from 0.

    Raises:
        ArgumentError: `n` is negative, `m` below 1, or the axis absent or no multiple of `m`.

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
    groups = weight.detach().abs().movedim(axis, -1)
    groups = groups.reshape(*groups.shape[:-1], -1, m)
    order = groups.sort(dim=-1, descending=True, stable=True).indices
    mask = torch.zeros_like(groups, dtype=torch.bool).scatter_(-1, order[..., :n], value=True)
    return mask.flatten(-2).movedim(-1, axis).contiguous()

"""Scores of tiles of weights, and masks of the lowest."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError
from nncfx.schemes import Criterion, MaskScope, magnitude_mask
from nncfx.schemes.operators import block_scores


def padded_block_scores(weight: Tensor, block: Sequence[int], criterion: Criterion) -> Tensor:
    """Return the score of every block of `weight`, shaped as the grid of blocks.

    Blocks that extend beyond the weight are padded with zeros.

    Args:
        weight: Any shape.
        block: Extents along its first axes, 1 along the others.
        criterion: How the weights of one block become one score.

    Raises:
        ArgumentError: the block has more extents than the weight has axes, or an extent below 1.

    >>> padded_block_scores(torch.ones(3, 3), (2, 2), "sum")
    tensor([[4., 2.],
            [2., 1.]])
    """
    if len(block) > weight.ndim or min(block, default=0) < 1:
        raise ArgumentError(
            f"block is {tuple(block)!r} for a weight of {weight.ndim} axes; a block has an extent "
            "of at least 1 along each of the first axes. Write (4, 4) for tiles of 4 x 4."
        )
    extents = (*block, *[1] * (weight.ndim - len(block)))
    missing = [-n % extent for n, extent in zip(weight.shape, extents, strict=True)]
    padding = [size for one in reversed(missing) for size in (0, one)]
    return block_scores(nn.functional.pad(weight.detach(), padding), extents, criterion)


def block_masks(
    weights: Mapping[str, Tensor],
    level: float,
    block: Sequence[int],
    *,
    criterion: Criterion = "l2norm",
    scope: MaskScope = "global",
) -> dict[str, Tensor]:
    """Return the mask of each weight, True where the block of an entry stays.

    The `floor(level * n)` of n blocks with the smallest scores are removed; of equal scores, the
    later ones. A weight's scores are divided by their Euclidean norm, so layers of small weights
    are not zeroed first. No weight is emptied.

    Args:
        weights: By name.
        level: Fraction of the blocks to zero, in [0, 1).
        block: Extents along the first axes of each weight, 1 along the others.
        criterion: How the weights of one block become one non-negative score.
        scope: One ranking over all weights, or one per weight.

    Raises:
        ArgumentError: `level` is not in [0, 1), or `block` does not fit a weight.
        CompressionError: a weight has NaN entries.

    >>> block_masks({"w": torch.tensor([[1.0, 0.0, 5.0]])}, 0.5, (1, 2))
    {'w': tensor([[False, False,  True]])}
    """
    scores = {
        name: padded_block_scores(weight, block, criterion) for name, weight in weights.items()
    }
    masks = magnitude_mask(scores, level, scope=scope, normed=True)
    return {name: _spread(mask, block, weights[name].shape) for name, mask in masks.items()}


def _spread(grid: Tensor, block: Sequence[int], shape: torch.Size) -> Tensor:
    """Return `grid`, one entry per block, expanded to `shape`."""
    for axis, extent in enumerate(block):
        grid = grid.repeat_interleave(extent, dim=axis).narrow(axis, 0, shape[axis])
    return grid

"""Block pruning: whole tiles of a weight are zero, of any extent along each of its axes.

Channels stay: the weight keeps its shape, and kernels for block-sparse weights skip the tiles.

Source: Condensa (Joseph et al. 2020), Table 1, "BlockPrune", with tiles that need not divide.
"""

from collections.abc import Mapping, Sequence
from typing import Final, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.config import BlockPruningConfig
from nncfx.controllers import (
    Builder,
    Controller,
    MaskHook,
    MaskSet,
    SparsityStatistics,
    plan_on_weights,
    register_algorithm,
    sparsity_scheduler,
    sparsity_statistics,
)
from nncfx.controllers.base.weights import raw_parameters
from nncfx.errors import ArgumentError
from nncfx.network import NNCFNetwork
from nncfx.schemes import Criterion, MaskScope, magnitude_mask
from nncfx.schemes.operators import block_scores
from nncfx.tracing import Insertion

__all__ = ["BlockPruningBuilder", "BlockPruningController", "block_masks", "padded_block_scores"]

_CRITERIA: Final[Mapping[str, Criterion]] = {"L1": "l1norm", "L2": "l2norm", "max": "max"}


def padded_block_scores(weight: Tensor, block: Sequence[int], criterion: Criterion) -> Tensor:
    """Return the score of every block of `weight`, shaped as the grid of blocks.

    Blocks that reach beyond the weight are filled with zeros.

    Args:
        weight: Any shape.
        block: Extents along its first axes, 1 along the others.
        criterion: How the weights of one block become one score.

    Raises:
        ArgumentError: the block has more extents than the weight has axes, or one below 1.

    >>> padded_block_scores(torch.ones(3, 3), (2, 2), "sum")
    tensor([[4., 2.],
            [2., 1.]])
    """
    if len(block) > weight.ndim or min(block, default=0) < 1:
        raise ArgumentError(
            f"block is {tuple(block)!r} for a weight of {weight.ndim} axes; a block has an extent "
            "of at least 1 along each of the first axes. Write (4, 4) for tiles of 4 x 4.",
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

    `floor(level * n)` of n blocks go, those of the smallest score; a weight's scores are divided
    by their Euclidean norm, so that layers of small weights are not zeroed first. Of equal ones
    the later goes. No weight is emptied.

    Args:
        weights: By name.
        level: Fraction of the blocks to zero, in [0, 1).
        block: Extents along the first axes of each weight, 1 along the others.
        criterion: How the weights of one block become one score, which is not negative.
        scope: One ranking over all weights, or one for each.

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
    """Return the mask of shape `shape` that has an entry of `grid` for each block."""
    for axis, extent in enumerate(block):
        grid = grid.repeat_interleave(extent, dim=axis).narrow(axis, 0, shape[axis])
    return grid


@final
class BlockPruningController(Controller):
    """Masks blocks of weights at the level its scheduler asks for, a fraction of the blocks.

    Attributes:
        config: The algorithm's config.
        masks: The masks by parameter.
    """

    def __init__(self, model: nn.Module, config: BlockPruningConfig, masks: MaskSet) -> None:
        super().__init__(model, config.algorithm, [config])
        self.config = config
        self.masks = masks
        self.level = config.sparsity_init
        self.scheduler = sparsity_scheduler(self, config.params, reached=lambda: self.level)

    @override
    def _apply(self, level: float) -> None:
        params = self.config.params
        weights = raw_parameters(self.model)
        masks = block_masks(
            {name: weights[name] for name in self.masks.hooks},
            level,
            params.block,
            criterion=_CRITERIA[params.block_importance],
            scope=params.sparsity_level_setting_mode,
        )
        self.masks.set(masks)

    @override
    def statistics(self) -> SparsityStatistics:
        return sparsity_statistics(self.model, self.masks.all_removed(self.model), self.level)


@final
@register_algorithm(BlockPruningConfig)
class BlockPruningBuilder(Builder[BlockPruningConfig]):
    """Plans a mask on every weight with at least as many axes as a block."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        axes = len(self.config.params.block)
        parameters = raw_parameters(model)
        return plan_on_weights(
            self,
            model,
            lambda weight: MaskHook.along(weight, range(weight.ndim)),
            takes=lambda weight: parameters[weight.name].ndim >= axes,
            kind=f"weight of at least {axes} axes",
        )

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> BlockPruningController:
        return BlockPruningController(model, self.config, MaskSet.of(model, insertions))

"""The builder and controller of block pruning, which zeroes whole tiles of any extents.

Channels stay, so the weight keeps its shape; kernels for block-sparse weights skip the tiles.

Source: Condensa (Joseph et al. 2020), Table 1, "BlockPrune", but tiles need not divide a weight.
"""

from collections.abc import Mapping
from typing import Final, final

from torch import nn
from typing_extensions import override

from nncfx.algorithms.block_pruning.config import BlockPruningConfig
from nncfx.algorithms.block_pruning.masks import block_masks
from nncfx.controllers import MaskSet, register_algorithm, sparsity_scheduler
from nncfx.controllers.base.weights import raw_parameters
from nncfx.controllers.masks.weight_sparsity import MaskBuilder, MaskController
from nncfx.network import NNCFNetwork
from nncfx.schemes import Criterion
from nncfx.tracing import Insertion

_CRITERIA: Final[Mapping[str, Criterion]] = {"L1": "l1norm", "L2": "l2norm", "max": "max"}


@final
class BlockPruningController(MaskController):
    """Masks blocks of weights at the level its scheduler sets, a fraction of the blocks."""

    config: BlockPruningConfig

    def __init__(self, model: nn.Module, config: BlockPruningConfig, masks: MaskSet) -> None:
        super().__init__(model, config, masks)
        self.level = config.sparsity_init
        self.scheduler = sparsity_scheduler(self, config.params, reached=lambda: self.level)

    @override
    def _apply(self, level: float) -> None:
        params = self.config.params
        masks = block_masks(
            self.weights(),
            level,
            params.block,
            criterion=_CRITERIA[params.block_importance],
            scope=params.sparsity_level_setting_mode,
        )
        self.masks.set(masks)


@final
@register_algorithm(BlockPruningConfig)
class BlockPruningBuilder(MaskBuilder[BlockPruningConfig]):
    """Plans a mask on every weight with at least as many axes as a block."""

    controller_class = BlockPruningController

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        axes = len(self.config.params.block)
        parameters = raw_parameters(model)
        return self.masked(
            model,
            takes=lambda weight: not weight.is_stack and parameters[weight.name].ndim >= axes,
            kind=f"weight of at least {axes} axes",
        )

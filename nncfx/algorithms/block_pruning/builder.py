"""Block pruning: a mask on every weight."""

from collections.abc import Sequence
from typing import final

from typing_extensions import override

from nncfx.algorithms.block_pruning.config import BlockPruningConfig
from nncfx.algorithms.block_pruning.controller import BlockPruningController
from nncfx.controllers import Builder, MaskHook, MaskSet, plan_on_weights, register_algorithm
from nncfx.controllers.base.weights import raw_parameters
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion

__all__ = ["BlockPruningBuilder"]


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
            takes=lambda weight: not weight.is_stack and parameters[weight.name].ndim >= axes,
            kind=f"weight of at least {axes} axes",
        )

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> BlockPruningController:
        return BlockPruningController(model, self.config, MaskSet.of(model, insertions))

"""The builder of the entropy constraint."""

from collections.abc import Sequence
from typing import final

from typing_extensions import override

from nncfx.algorithms.entropy_constraint.config import EntropyConstraintConfig
from nncfx.algorithms.entropy_constraint.controller import EntropyConstraintController
from nncfx.algorithms.entropy_constraint.hook import GridHook
from nncfx.controllers import Builder, plan_on_weights, register_algorithm
from nncfx.controllers.base.weights import hooks_by_weight
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion, Priority


@final
@register_algorithm(EntropyConstraintConfig)
class EntropyConstraintBuilder(Builder[EntropyConstraintConfig]):
    """Plans hooks on weights of convolutions, linear and recurrent layers, tables, experts.

    They run after hooks of sparsity, so pruned weights are zero on the grid.
    """

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        return plan_on_weights(
            self, model, GridHook, priority=Priority.SPARSITY + 2, are_real=True
        )

    @override
    def controller(
        self, model: NNCFNetwork, insertions: Sequence[Insertion]
    ) -> EntropyConstraintController:
        hooks = hooks_by_weight(model, insertions, GridHook)
        return EntropyConstraintController(model, self.config, hooks)

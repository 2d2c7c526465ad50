"""The builder of regularization-based sparsity."""

from collections.abc import Sequence
from typing import final

from typing_extensions import override

from nncfx.algorithms.rb_sparsity.config import RBSparsityConfig
from nncfx.algorithms.rb_sparsity.controller import RBSparsityController
from nncfx.algorithms.rb_sparsity.mask import LearnedMask
from nncfx.controllers import Builder, plan_on_weights, register_algorithm
from nncfx.controllers.base.weights import hooks_by_weight
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion


@final
@register_algorithm(RBSparsityConfig)
class RBSparsityBuilder(Builder[RBSparsityConfig]):
    """Plans a learned mask on every weight that `magnitude_sparsity` masks."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        return plan_on_weights(self, model, LearnedMask, are_real=True)

    @override
    def controller(
        self, model: NNCFNetwork, insertions: Sequence[Insertion]
    ) -> RBSparsityController:
        masks = hooks_by_weight(model, insertions, LearnedMask)
        return RBSparsityController(model, self.config, masks)

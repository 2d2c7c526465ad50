"""The builder and controller of constant sparsity, which keeps zero weights zero in training.

Source: NNCF 2.19, "Constant sparsity".
"""

from typing import final

from typing_extensions import override

from nncfx.algorithms.const_sparsity.config import ConstSparsityConfig
from nncfx.controllers import MaskHook, plan_on_weights, register_algorithm
from nncfx.controllers.masks.weight_sparsity import MaskBuilder, MaskController
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion


@final
class ConstSparsityController(MaskController):
    """Keeps the initial zeros; its level is 0 and cannot be set."""

    has_level: bool = False


@final
@register_algorithm(ConstSparsityConfig)
class ConstSparsityBuilder(MaskBuilder[ConstSparsityConfig]):
    """Plans a mask of the non-zero entries on every weight."""

    controller_class = ConstSparsityController

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        return plan_on_weights(self, model, lambda one: MaskHook((one != 0).to(one.dtype)))

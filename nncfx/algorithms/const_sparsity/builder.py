"""Constant sparsity: masks of the entries that are not zero."""

from collections.abc import Sequence
from typing import final

from torch import Tensor
from typing_extensions import override

from nncfx.algorithms.const_sparsity.config import ConstSparsityConfig
from nncfx.algorithms.const_sparsity.controller import ConstSparsityController
from nncfx.controllers import Builder, MaskHook, MaskSet, plan_on_weights, register_algorithm
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion

__all__ = ["ConstSparsityBuilder"]


@final
@register_algorithm(ConstSparsityConfig)
class ConstSparsityBuilder(Builder[ConstSparsityConfig]):
    """Plans a mask of the entries that are not zero on every weight."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        return plan_on_weights(self, model, _of_nonzero)

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> ConstSparsityController:
        return ConstSparsityController(model, self.config, MaskSet.of(model, insertions))


def _of_nonzero(weight: Tensor) -> MaskHook:
    return MaskHook((weight != 0).to(weight.dtype))

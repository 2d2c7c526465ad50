"""Magnitude sparsity: a mask on every weight."""

from collections.abc import Sequence
from typing import final

from typing_extensions import override

from nncfx.algorithms.magnitude_sparsity.config import MagnitudeSparsityConfig
from nncfx.algorithms.magnitude_sparsity.controller import MagnitudeSparsityController
from nncfx.controllers import Builder, MaskHook, MaskSet, plan_on_weights, register_algorithm
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion

__all__ = ["MagnitudeSparsityBuilder"]


@final
@register_algorithm(MagnitudeSparsityConfig)
class MagnitudeSparsityBuilder(Builder[MagnitudeSparsityConfig]):
    """Plans a mask on every weight of convolutions, linear, recurrent layers, tables, experts."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        return plan_on_weights(
            self,
            model,
            lambda weight: MaskHook.along(weight, range(weight.ndim)),
        )

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> MagnitudeSparsityController:
        return MagnitudeSparsityController(model, self.config, MaskSet.of(model, insertions))

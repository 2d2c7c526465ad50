"""N:M sparsity: masks on the weights that have enough input channels."""

from collections.abc import Sequence
from typing import Final, final

from typing_extensions import override

from nncfx.algorithms.nm_sparsity.config import NMSparsityConfig
from nncfx.algorithms.nm_sparsity.controller import NMSparsityController
from nncfx.controllers import Builder, MaskHook, MaskSet, plan_on_weights, register_algorithm
from nncfx.controllers.base.weights import Weight, raw_parameters
from nncfx.network import NNCFNetwork
from nncfx.operators import functions_of
from nncfx.tracing import Insertion

__all__ = ["NMSparsityBuilder"]

_FUNCTIONS: Final = functions_of("conv", "linear")


@final
@register_algorithm(NMSparsityConfig)
class NMSparsityBuilder(Builder[NMSparsityConfig]):
    """Plans masks on convolutions and linear layers whose input channels divide into groups."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        m = self.config.params.m
        parameters = raw_parameters(model)
        graph = model.nncf.graph

        def takes(weight: Weight) -> bool:
            functions = {graph.find(address).function for address in weight.readers}
            return functions <= _FUNCTIONS and parameters[weight.name].shape[1] % m == 0

        return plan_on_weights(
            self,
            model,
            lambda weight: MaskHook.along(weight, range(weight.ndim)),
            takes=takes,
            kind=f"convolution or linear layer whose input channels are a multiple of {m}",
        )

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> NMSparsityController:
        return NMSparsityController(model, self.config, MaskSet.of(model, insertions))

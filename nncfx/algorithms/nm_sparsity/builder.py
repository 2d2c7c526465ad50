"""N:M sparsity: masks on the weights that have enough input channels."""

from collections.abc import Sequence
from typing import Final, final

from typing_extensions import override

from nncfx.algorithms.nm_sparsity.config import NMSparsityConfig
from nncfx.algorithms.nm_sparsity.controller import NMSparsityController
from nncfx.controllers import Builder, MaskHook, MaskSet, plan_on_weights, register_algorithm
from nncfx.controllers.base.weights import Weight, aliases, raw_parameters
from nncfx.graph.stacked_matrices import stacked_matrices
from nncfx.network import NNCFNetwork
from nncfx.operators import functions_of
from nncfx.tracing import Insertion

__all__ = ["NMSparsityBuilder"]

_FUNCTIONS: Final = functions_of("conv", "linear")


@final
@register_algorithm(NMSparsityConfig)
class NMSparsityBuilder(Builder[NMSparsityConfig]):
    """Plans masks on convolutions, linear layers and experts whose inputs divide into groups."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        m = self.config.params.m
        parameters = raw_parameters(model)
        graph = model.nncf.graph
        axes = _input_axes(model)

        def takes(weight: Weight) -> bool:
            functions = {graph.find(address).function for address in weight.readers}
            shape = parameters[weight.name].shape
            return (weight.is_stack or functions <= _FUNCTIONS) and not (
                shape[axes.get(weight.name, 1)] % m
            )

        return plan_on_weights(
            self,
            model,
            lambda weight: MaskHook.along(weight, range(weight.ndim)),
            takes=takes,
            kind=f"convolution, linear layer or expert whose inputs are a multiple of {m}",
        )

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> NMSparsityController:
        masks = MaskSet.of(model, insertions)
        return NMSparsityController(model, self.config, masks, _input_axes(model))


def _input_axes(model: NNCFNetwork) -> dict[str, int]:
    """Return the axis of the inputs in each stack of experts, by its first name."""
    names = aliases(model)
    stacks = stacked_matrices(model.nncf.graph)
    # experts, then outputs and inputs in either order
    return {names[name][0]: 1 if outputs == 2 else 2 for name, outputs in stacks.items()}  # noqa: PLR2004 (an axis)

"""N:M sparsity: of every m neighbouring weights, the n largest stay.

Neighbours follow each other along the inputs, the axis that sparse tensor cores contract.

Source: Mishra et al., "Accelerating sparse deep neural networks", 2021 (2:4).
"""

import math
from typing import Final, final

from typing_extensions import override

from nncfx.algorithms.nm_sparsity.config import NMSparsityConfig
from nncfx.algorithms.nm_sparsity.masks import nm_mask
from nncfx.controllers import BaselineSchedule, EpochScheduler, MaskSet, WarmUp, register_algorithm
from nncfx.controllers.base.weights import Weight, aliases, raw_parameters
from nncfx.controllers.masks.weight_sparsity import MaskBuilder, MaskController
from nncfx.graph.stacked_matrices import stacked_matrices
from nncfx.network import NNCFNetwork
from nncfx.operators import functions_of
from nncfx.schemes.layers import turned_kinds
from nncfx.tracing import Insertion, WeightSite

_FUNCTIONS: Final = functions_of("conv", "linear")
_TURNED: Final = functions_of("addmm")


@final
class NMSparsityController(MaskController):
    """Masks each group of m neighbours alike.

    A level takes `floor(level * m)` of each group; the pattern's own level is `1 - n / m`.

    Attributes:
        axes: The axes of the inputs, by parameter; 1 of those that are not in it.
    """

    config: NMSparsityConfig

    def __init__(self, model: NNCFNetwork, config: NMSparsityConfig, masks: MaskSet) -> None:
        super().__init__(model, config, masks)
        self.axes = _input_axes(model)
        params = config.params
        target = BaselineSchedule(target=(params.m - params.n) / params.m)
        schedule = WarmUp(epochs=params.start_epoch, then=target)
        self.scheduler = EpochScheduler(self, schedule, params.freeze_epoch)

    @override
    def _apply(self, level: float) -> None:
        m = self.config.params.m
        # above the fraction by less than rounding, so that (m - n) / m takes m - n
        n = m - math.floor(level * m + 1e-9)
        weights = self.weights().items()
        self.masks.set({name: nm_mask(one, n, m, self.axes.get(name, 1)) for name, one in weights})


@final
@register_algorithm(NMSparsityConfig)
class NMSparsityBuilder(MaskBuilder[NMSparsityConfig]):
    """Plans masks on convolutions, linear layers and experts whose inputs divide into groups."""

    controller_class = NMSparsityController

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        m = self.config.params.m
        parameters = raw_parameters(model)
        graph = model.nncf.graph
        axes = _input_axes(model)

        def takes(weight: Weight) -> bool:
            functions = {graph.find(address).function for address in weight.readers}
            shape = parameters[weight.name].shape
            axis = axes.get(weight.name, 1)
            known = _FUNCTIONS if axis else _TURNED
            return (weight.is_stack or functions <= known) and not shape[axis] % m

        kind = f"convolution, linear layer or expert whose inputs are a multiple of {m}"
        return self.masked(model, takes=takes, kind=kind)


def _input_axes(model: NNCFNetwork) -> dict[str, int]:
    """Return the axis of the inputs in each weight that has it elsewhere, by its first name.

    Those are stacks of experts and linear layers whose columns make the outputs.
    """
    names = aliases(model)
    kinds = turned_kinds()
    modules = (name for name, one in model.named_modules() if isinstance(one, kinds))
    weights = (str(WeightSite(module=one, name="weight")) for one in modules)
    turned = {names[one][0]: 0 for one in weights if one in names}
    stacks = stacked_matrices(model.nncf.graph)
    # experts, then outputs and inputs in either order
    return turned | {
        names[name][0]: 1 if outputs == 2 else 2  # noqa: PLR2004 (an axis)
        for name, outputs in stacks.items()
    }

"""The builder and controller of N:M sparsity, which keeps the n largest of every m neighbours.

Neighbours are adjacent along the inputs, the axis that sparse tensor cores contract.

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
    """Masks the same number of weights in each group of m neighbours.

    A level removes `floor(level * m)` of each group; the level of the pattern is `1 - n / m`.

    Attributes:
        axes: The axes of the inputs, by parameter; 1 for parameters that are not listed.
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
        # a margin for rounding errors, so that (m - n) / m removes m - n
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
    """Return the input axis of each weight for which it is not 1, by its first name.

    These are stacks of experts, and linear layers whose columns produce the outputs.
    """
    names = aliases(model)
    kinds = turned_kinds()
    modules = (name for name, one in model.named_modules() if isinstance(one, kinds))
    weights = (str(WeightSite(module=one, name="weight")) for one in modules)
    turned = {names[one][0]: 0 for one in weights if one in names}
    stacks = stacked_matrices(model.nncf.graph)
    # axis 0 counts experts; outputs and inputs follow in either order
    return turned | {
        names[name][0]: 1 if outputs == 2 else 2  # noqa: PLR2004 (an axis)
        for name, outputs in stacks.items()
    }

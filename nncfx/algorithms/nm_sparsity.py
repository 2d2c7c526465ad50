"""N:M sparsity: of every m neighbouring weights, the n largest stay.

Neighbours follow each other along the input channels, the axis that sparse tensor cores contract.

Source: Mishra et al., "Accelerating sparse deep neural networks", 2021 (2:4).
"""

import math
from collections.abc import Sequence
from typing import Final, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.config import NMSparsityConfig
from nncfx.controllers import (
    BaselineSchedule,
    Builder,
    Controller,
    EpochScheduler,
    MaskHook,
    MaskSet,
    SparsityStatistics,
    WarmUp,
    plan_on_weights,
    register_algorithm,
    sparsity_statistics,
)
from nncfx.controllers.base.weights import Weight, raw_parameters
from nncfx.errors import ArgumentError
from nncfx.network import NNCFNetwork
from nncfx.schemes.masks.exact_masks import check_at_least
from nncfx.tracing import Insertion

__all__ = ["NMSparsityBuilder", "NMSparsityController", "nm_mask"]

ALGORITHM = NMSparsityConfig.algorithm
_FUNCTIONS: Final = frozenset({"conv1d", "conv2d", "conv3d", "linear"})


def nm_mask(weight: Tensor, n: int, m: int) -> Tensor:
    """Return the mask that keeps the `n` largest of every `m` neighbours along axis 1.

    Of equal magnitudes the earlier stays.

    Args:
        weight: `o x i x *k`, with i a multiple of `m`.
        n: How many stay; `m` or more is all.
        m: How many make a group.

    Raises:
        ArgumentError: `n` is negative, `m` below 1, or i no multiple of `m`.

    >>> nm_mask(torch.tensor([[1.0, -4.0, 3.0, 2.0]]), 2, 4)
    tensor([[False,  True,  True, False]])
    """
    check_at_least("n", n, 0)
    check_at_least("m", m, 1)
    if weight.ndim < 2 or weight.shape[1] % m:  # noqa: PLR2004 (axis 1 must be there)
        raise ArgumentError(
            f"A weight of shape {tuple(weight.shape)} has no axis 1 of a multiple of {m}, which "
            "groups of that size need. Leave the layer out.",
        )
    groups = weight.detach().abs().movedim(1, -1)
    groups = groups.reshape(*groups.shape[:-1], -1, m)
    order = groups.sort(dim=-1, descending=True, stable=True).indices
    mask = torch.zeros_like(groups, dtype=torch.bool).scatter_(-1, order[..., :n], value=True)
    return mask.flatten(-2).movedim(-1, 1).contiguous()


@final
class NMSparsityController(Controller):
    """Masks each group of m neighbours alike.

    A level takes `floor(level * m)` of each group; the pattern's own level is `1 - n / m`.

    Attributes:
        config: The algorithm's config.
        masks: The masks by parameter.
    """

    def __init__(self, model: nn.Module, config: NMSparsityConfig, masks: MaskSet) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.masks = masks
        params = config.params
        target = BaselineSchedule(target=(params.m - params.n) / params.m)
        schedule = WarmUp(epochs=params.start_epoch, then=target)
        self.scheduler = EpochScheduler(self, schedule, params.freeze_epoch)

    @override
    def _apply(self, level: float) -> None:
        m = self.config.params.m
        # above the fraction by less than rounding, so that (m - n) / m takes m - n
        n = m - math.floor(level * m + 1e-9)
        weights = raw_parameters(self.model)
        self.masks.set({name: nm_mask(weights[name], n, m) for name in self.masks.hooks})

    @override
    def statistics(self) -> SparsityStatistics:
        return sparsity_statistics(self.model, self.masks.all_removed(self.model), self.level)


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

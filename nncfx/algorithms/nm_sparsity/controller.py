"""N:M sparsity: of every m neighbouring weights, the n largest stay.

Neighbours follow each other along the inputs, the axis that sparse tensor cores contract.

Source: Mishra et al., "Accelerating sparse deep neural networks", 2021 (2:4).
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import final

from torch import nn
from typing_extensions import override

from nncfx.algorithms.nm_sparsity.config import NMSparsityConfig
from nncfx.algorithms.nm_sparsity.masks import nm_mask
from nncfx.controllers import (
    BaselineSchedule,
    Controller,
    EpochScheduler,
    MaskSet,
    SparsityStatistics,
    WarmUp,
    sparsity_statistics,
)
from nncfx.controllers.base.weights import raw_parameters

__all__ = ["NMSparsityController"]

ALGORITHM = NMSparsityConfig.algorithm


@final
class NMSparsityController(Controller):
    """Masks each group of m neighbours alike.

    A level takes `floor(level * m)` of each group; the pattern's own level is `1 - n / m`.

    Attributes:
        config: The algorithm's config.
        masks: The masks by parameter.
        axes: The axes of the inputs, by parameter; 1 of those that are not in it.
    """

    def __init__(
        self,
        model: nn.Module,
        config: NMSparsityConfig,
        masks: MaskSet,
        axes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.masks = masks
        self.axes = axes
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
        axes = {name: self.axes.get(name, 1) for name in self.masks.hooks}
        self.masks.set({name: nm_mask(weights[name], n, m, axis) for name, axis in axes.items()})

    @override
    def statistics(self) -> SparsityStatistics:
        return sparsity_statistics(self.model, self.masks.all_removed(self.model), self.level)

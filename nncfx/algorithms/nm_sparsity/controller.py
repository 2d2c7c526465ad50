"""N:M sparsity: of every m neighbouring weights, the n largest stay.

Neighbours follow each other along the inputs, the axis that sparse tensor cores contract.

Source: Mishra et al., "Accelerating sparse deep neural networks", 2021 (2:4).
"""

import math
from collections.abc import Mapping
from typing import final

from torch import nn
from typing_extensions import override

from nncfx.algorithms.nm_sparsity.config import NMSparsityConfig
from nncfx.algorithms.nm_sparsity.masks import nm_mask
from nncfx.controllers import BaselineSchedule, EpochScheduler, MaskSet, WarmUp
from nncfx.controllers.masks.weight_sparsity import MaskController

__all__ = ["NMSparsityController"]


@final
class NMSparsityController(MaskController):
    """Masks each group of m neighbours alike.

    A level takes `floor(level * m)` of each group; the pattern's own level is `1 - n / m`.

    Attributes:
        axes: The axes of the inputs, by parameter; 1 of those that are not in it.
    """

    config: NMSparsityConfig

    def __init__(
        self,
        model: nn.Module,
        config: NMSparsityConfig,
        masks: MaskSet,
        axes: Mapping[str, int],
    ) -> None:
        super().__init__(model, config, masks)
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
        weights = self.weights().items()
        self.masks.set({name: nm_mask(one, n, m, self.axes.get(name, 1)) for name, one in weights})

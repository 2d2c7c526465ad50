"""Magnitude sparsity: the weights of smallest magnitude are zero.

Source: NNCF 2.19, "Magnitude sparsity"; Zhu and Gupta, "To prune, or not to prune", 2017.
"""

from typing import final

from torch import Tensor, nn
from typing_extensions import override

from nncfx.algorithms.magnitude_sparsity.config import MagnitudeSparsityConfig
from nncfx.controllers import (
    Controller,
    MaskSet,
    SparsityStatistics,
    sparsity_scheduler,
    sparsity_statistics,
)
from nncfx.controllers.base.weights import raw_parameters
from nncfx.schemes.masks.magnitude_masks import MagnitudeMasks

__all__ = ["MagnitudeSparsityController"]

ALGORITHM = MagnitudeSparsityConfig.algorithm


@final
class MagnitudeSparsityController(Controller):
    """Masks weights by magnitude at the level its scheduler asks for.

    Attributes:
        config: The algorithm's config.
        masks: The masks by parameter.
    """

    def __init__(
        self,
        model: nn.Module,
        config: MagnitudeSparsityConfig,
        masks: MaskSet,
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.masks = masks
        self.level = config.sparsity_init
        self.scheduler = sparsity_scheduler(self, config.params, reached=self._reached)

    @override
    def _apply(self, level: float) -> None:
        params = self.config.params
        masks = MagnitudeMasks(
            self._weights(),
            level,
            scope=params.sparsity_level_setting_mode,
            normed=params.weight_importance == "normed_abs",
        )
        self.masks.set(masks)

    @override
    def statistics(self) -> SparsityStatistics:
        return sparsity_statistics(self.model, self.masks.all_removed(self.model), self.level)

    def _weights(self) -> dict[str, Tensor]:
        parameters = raw_parameters(self.model)
        return {name: parameters[name] for name in self.masks.hooks}

    def _reached(self) -> float:
        return self.statistics().level

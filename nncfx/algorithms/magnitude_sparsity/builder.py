"""The builder and controller of magnitude sparsity.

Source: NNCF 2.19, "Magnitude sparsity"; Zhu and Gupta, "To prune, or not to prune", 2017.
"""

from typing import final

from torch import nn
from typing_extensions import override

from nncfx.algorithms.magnitude_sparsity.config import MagnitudeSparsityConfig
from nncfx.controllers import MaskSet, register_algorithm, sparsity_scheduler
from nncfx.controllers.masks.weight_sparsity import MaskBuilder, MaskController
from nncfx.schemes.masks.magnitude_masks import MagnitudeMasks


@final
class MagnitudeSparsityController(MaskController):
    """Masks weights by magnitude, at the level its scheduler sets."""

    config: MagnitudeSparsityConfig

    def __init__(self, model: nn.Module, config: MagnitudeSparsityConfig, masks: MaskSet) -> None:
        super().__init__(model, config, masks)
        self.level = config.sparsity_init
        self.scheduler = sparsity_scheduler(self, config.params, reached=self._reached)

    @override
    def _apply(self, level: float) -> None:
        params = self.config.params
        masks = MagnitudeMasks(
            self.weights(),
            level,
            scope=params.sparsity_level_setting_mode,
            normed=params.weight_importance == "normed_abs",
        )
        self.masks.set(masks)

    def _reached(self) -> float:
        return self.statistics().level


@final
@register_algorithm(MagnitudeSparsityConfig)
class MagnitudeSparsityBuilder(MaskBuilder[MagnitudeSparsityConfig]):
    """Plans masks on weights of convolutions, linear and recurrent layers, tables, experts."""

    controller_class = MagnitudeSparsityController

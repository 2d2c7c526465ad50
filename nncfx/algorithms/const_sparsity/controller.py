"""Constant sparsity: the weights that are zero stay zero while the others train on.

Source: NNCF 2.19, "Constant sparsity".
"""

from typing import final

from torch import nn
from typing_extensions import override

from nncfx.algorithms.const_sparsity.config import ConstSparsityConfig
from nncfx.controllers import (
    Controller,
    MaskSet,
    SparsityStatistics,
    sparsity_statistics,
)

__all__ = ["ConstSparsityController"]

ALGORITHM = ConstSparsityConfig.algorithm


@final
class ConstSparsityController(Controller):
    """Keeps the zeros that were there at the start; its level is 0 and cannot be set.

    Attributes:
        masks: The masks by parameter.
    """

    has_level: bool = False

    def __init__(self, model: nn.Module, config: ConstSparsityConfig, masks: MaskSet) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.masks = masks

    @override
    def statistics(self) -> SparsityStatistics:
        return sparsity_statistics(self.model, self.masks.all_removed(self.model), self.level)

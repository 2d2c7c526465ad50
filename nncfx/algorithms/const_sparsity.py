"""Constant sparsity: the weights that are zero stay zero while the others train on.

Source: NNCF 2.19, "Constant sparsity".
"""

from collections.abc import Sequence
from typing import ClassVar, final

from torch import Tensor, nn
from typing_extensions import override

from nncfx.config import ConstSparsityConfig
from nncfx.controllers import (
    BaselineSchedule,
    Builder,
    Controller,
    EpochScheduler,
    MaskHook,
    MaskSet,
    SparsityStatistics,
    plan_on_weights,
    register_algorithm,
    sparsity_statistics,
)
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion

__all__ = ["ConstSparsityBuilder", "ConstSparsityController"]

ALGORITHM = ConstSparsityConfig.algorithm


@final
class ConstSparsityController(Controller):
    """Keeps the zeros that were there at the start; its level is 0 and cannot be set.

    Attributes:
        masks: The masks by parameter.
    """

    has_level: ClassVar[bool] = False

    def __init__(self, model: nn.Module, config: ConstSparsityConfig, masks: MaskSet) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.masks = masks
        self.scheduler = EpochScheduler(self, BaselineSchedule(target=0.0), 0)

    @override
    def _apply(self, level: float) -> None:
        """Do nothing: the masks are those of the plan."""

    @override
    def statistics(self) -> SparsityStatistics:
        return sparsity_statistics(self.model, self.masks.all_removed(self.model), self.level)


@final
@register_algorithm(ConstSparsityConfig)
class ConstSparsityBuilder(Builder[ConstSparsityConfig]):
    """Plans a mask of the entries that are not zero on every weight."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        return plan_on_weights(self, model, _of_nonzero)

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> ConstSparsityController:
        return ConstSparsityController(model, self.config, MaskSet.of(model, insertions))


def _of_nonzero(weight: Tensor) -> MaskHook:
    return MaskHook((weight != 0).to(weight.dtype))

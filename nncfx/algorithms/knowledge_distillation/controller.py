"""Knowledge distillation: the outputs are pulled towards those before compression.

Source: NNCF 2.19, "Knowledge distillation"; Hinton et al., "Distilling the knowledge in a neural
network", 2015, section 2.
"""

import dataclasses
from typing import ClassVar, final

from torch import nn
from typing_extensions import override

from nncfx.algorithms.knowledge_distillation.config import KnowledgeDistillationConfig
from nncfx.algorithms.knowledge_distillation.loss import DistillationLoss
from nncfx.controllers import BaselineSchedule, Controller, EpochScheduler, Statistics, table

__all__ = ["DistillationStatistics", "KnowledgeDistillationController"]

ALGORITHM = KnowledgeDistillationConfig.algorithm


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationStatistics(Statistics):
    """How distillation compares.

    Attributes:
        type: "mse" or "softmax".
        scale: What the loss is multiplied by.
        temperature: What logits are divided by.
        outputs: How many outputs are compared.
    """

    type: str
    scale: float
    temperature: float
    outputs: int

    @override
    def to_str(self) -> str:
        header = ["type", "scale", "temperature", "outputs"]
        return table(header, [[self.type, self.scale, self.temperature, self.outputs]])


@final
class KnowledgeDistillationController(Controller):
    """Adds the distance to the teacher to the loss; it has no level.

    Attributes:
        config: The algorithm's config.
    """

    has_level: ClassVar[bool] = False
    needs_loss: ClassVar[bool] = True

    def __init__(
        self,
        model: nn.Module,
        config: KnowledgeDistillationConfig,
        loss: DistillationLoss,
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.compression_loss = self._distillation = loss
        self.scheduler = EpochScheduler(self, BaselineSchedule(target=0.0), 0)

    @override
    def _apply(self, level: float) -> None:
        """Do nothing: there is no level."""

    @override
    def statistics(self) -> DistillationStatistics:
        return DistillationStatistics(
            type=self.config.type,
            scale=self.config.scale,
            temperature=self.config.temperature,
            outputs=len(self._distillation.outputs),
        )

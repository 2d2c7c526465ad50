"""The controller of knowledge distillation, which pulls outputs towards a teacher's.

Source: NNCF 2.19, "Knowledge distillation"; Hinton et al., "Distilling the knowledge in a neural
network", 2015, section 2.
"""

import dataclasses
from typing import final

import torch
from torch import nn
from typing_extensions import override

from nncfx.algorithms.knowledge_distillation.config import KnowledgeDistillationConfig
from nncfx.algorithms.knowledge_distillation.loss import DistillationLoss
from nncfx.controllers import Controller, Statistics, table
from nncfx.errors import ArgumentError
from nncfx.network import NNCFNetwork, bake, inputs_for, is_strippable, strip
from nncfx.tracing import as_call
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.calls.tensors import tensors_in

ALGORITHM = KnowledgeDistillationConfig.algorithm


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationStatistics(Statistics):
    """The settings of distillation.

    Attributes:
        type: "mse" or "softmax".
        scale: Factor of the loss.
        temperature: Divisor of the logits.
        outputs: Number of compared outputs.
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

    has_level: bool = False
    needs_loss: bool = True

    def __init__(
        self, model: nn.Module, config: KnowledgeDistillationConfig, loss: DistillationLoss
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.compression_loss = self._distillation = loss

    def learn_from(self, teacher: nn.Module) -> None:
        """Use `teacher` in place of the model before compression.

        For instance the dense network of a thinned model, or a larger network. Call this before
        loading a checkpoint, since checkpoints hold the weights of the teacher.

        Args:
            teacher: Takes the inputs that the model gets in training, and returns as many outputs
                of the same shapes. A copy is kept, which computes what `teacher` does in
                evaluation mode, including its compression.

        Raises:
            ArgumentError: its outputs differ in number or shape.
        """
        loss = self._distillation
        network = copy_of(teacher).eval()
        if isinstance(network, NNCFNetwork):
            network = strip(network, inplace=True) if is_strippable(network) else bake(network)
        first = next(self.model.parameters())
        args, kwargs = as_call(inputs_for(self.model, None))
        with torch.no_grad():
            found = tensors_in(network.to(first.device)(*args, **kwargs))
            wanted = tensors_in(loss.teacher(*args, **kwargs))
        shapes = [[tuple(one.shape) for one in outputs] for outputs in (found, wanted)]
        if shapes[0] != shapes[1]:
            raise ArgumentError(
                f"The teacher returns tensors of the shapes {shapes[0]}, and the model "
                f"{shapes[1]} for the same inputs. Give one that returns what the model does."
            )
        loss.teacher.take_over(network)

    @override
    def statistics(self) -> DistillationStatistics:
        return DistillationStatistics(
            type=self.config.type,
            scale=self.config.scale,
            temperature=self.config.temperature,
            outputs=len(self._distillation.outputs),
        )

"""Knowledge distillation: the outputs are pulled towards those before compression.

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

    has_level: bool = False
    needs_loss: bool = True

    def __init__(
        self, model: nn.Module, config: KnowledgeDistillationConfig, loss: DistillationLoss
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.compression_loss = self._distillation = loss

    def learn_from(self, teacher: nn.Module) -> None:
        """Compare with `teacher`, not with the model before compression.

        Such as the dense network of a model that was thinned before, or a larger one. Call it
        before a checkpoint is loaded, which holds the weights of the teacher.

        Args:
            teacher: Takes whatever the model is called with in training, and returns as many
                outputs of the same shapes; a copy is kept, which computes as it does in evaluation
                mode, compressed or not.

        Raises:
            ArgumentError: it does not.
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

"""Random sparsity: weights chosen by chance are zero, the baseline of every other criterion.

Source: Gale, Elsen and Hooker, "The state of sparsity in deep neural networks", 2019.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.config import AlgorithmConfig, Limits, SparsityParams, option
from nncfx.controllers import (
    Builder,
    Controller,
    MaskHook,
    MaskSet,
    SparsityStatistics,
    plan_on_weights,
    register_algorithm,
    sparsity_scheduler,
    sparsity_statistics,
)
from nncfx.network import NNCFNetwork
from nncfx.schemes import magnitude_mask
from nncfx.tracing import Insertion


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomSparsityConfig(AlgorithmConfig):
    """Zero weights chosen by chance."""

    algorithm: ClassVar[str] = "random_sparsity"

    seed: int = option(0, "of the choice", limits=Limits(minimum=0))
    params: SparsityParams = option(SparsityParams(), "when which level holds")


def random_masks(
    shapes: Mapping[str, Sequence[int]], level: float, seed: int
) -> dict[str, Tensor]:
    """Return masks, True where an entry stays; what one level takes, a higher one takes too."""
    generator = torch.Generator().manual_seed(seed)
    scores = {name: torch.rand(*shape, generator=generator) for name, shape in shapes.items()}
    return magnitude_mask(scores, level)


@final
class RandomSparsityController(Controller):
    """Masks weights at the level its scheduler asks for."""

    def __init__(self, model: nn.Module, config: RandomSparsityConfig, masks: MaskSet) -> None:
        super().__init__(model, config.algorithm, [config])
        self.config = config
        self.masks = masks
        self.scheduler = sparsity_scheduler(
            self, config.params, reached=lambda: self.statistics().level
        )

    @override
    def _apply(self, level: float) -> None:
        shapes = {name: hooks[0].shape for name, hooks in self.masks.hooks.items()}
        self.masks.set(random_masks(shapes, level, self.config.seed))

    @override
    def statistics(self) -> SparsityStatistics:
        return sparsity_statistics(self.model, self.masks.all_removed(self.model), self.level)


@final
@register_algorithm(RandomSparsityConfig)
class RandomSparsityBuilder(Builder[RandomSparsityConfig]):
    """Plans a mask on every weight of convolutions, linear layers and embeddings."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        return plan_on_weights(self, model, lambda one: MaskHook(torch.ones_like(one)))

    @override
    def controller(
        self, model: NNCFNetwork, insertions: Sequence[Insertion]
    ) -> RandomSparsityController:
        return RandomSparsityController(model, self.config, MaskSet.of(model, insertions))

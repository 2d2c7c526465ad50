"""Regularization-based sparsity: which weights go is learned, under a loss that asks how many.

Every weight has a score; it stays while the score is above 0, and in training with the
probability sigmoid(score). The gradient passes the threshold as if it were the sigmoid.

Source: NNCF 2.19, "RB-sparsity"; Louizos et al., "Learning sparse neural networks through L0
regularization", 2017, from which it takes the idea.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.config import RBSparsityConfig
from nncfx.controllers import (
    Builder,
    CompressionLoss,
    Controller,
    SparsityStatistics,
    plan_on_weights,
    register_algorithm,
    sparsity_scheduler,
    sparsity_statistics,
)
from nncfx.controllers.weights import aliases
from nncfx.tracing import Insertion, NNCFNetwork

__all__ = [
    "LearnedMask",
    "RBLoss",
    "RBSparsityBuilder",
    "RBSparsityController",
    "initial_scores",
    "threshold",
]

ALGORITHM = RBSparsityConfig.algorithm
_WIDTH = 0.05
"""The distance from the level at which the loss is 1 (NNCF's p)."""

_CERTAIN = math.log(0.99 / 0.01)


def initial_scores(weight: Tensor) -> Tensor:
    """Return scores at which weights stay with a probability of about 0.99.

    NNCF gives all the same score. Here the score rises with the magnitude relative to the mean
    one, from half to three halves of it, so that small weights are the first to go where the task
    has no say.

    >>> initial_scores(torch.tensor([0.0, 1.0, -1.0, 9.0])).round(decimals=1)
    tensor([2.3000, 3.1000, 3.1000, 6.9000])
    """
    magnitude = weight.abs()
    mean = magnitude.mean()
    relative = magnitude / torch.where(mean > 0, mean, torch.ones_like(mean))
    return _CERTAIN * (0.5 + (relative / 2).clamp(max=1))


def threshold(scores: Tensor) -> Tensor:
    """Return 1 where a score is above 0, else 0; the gradient is that of the sigmoid.

    >>> threshold(torch.tensor([-1.0, 0.0, 1.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    probability = torch.sigmoid(scores)
    # the difference is zero exactly, and carries the gradient
    return (scores.detach() > 0).to(scores.dtype) + (probability - probability.detach())


@final
class LearnedMask(nn.Module):
    """Multiplies a weight by the threshold of its scores.

    In training mode the scores are disturbed by logistic noise, which keeps a weight with the
    probability sigmoid(score); the noise comes from torch's global generator, as dropout's does.

    Attributes:
        scores: One per entry of the weight.
        is_active: 1 where the mask counts; at 0 all entries stay, bitwise.
        is_noisy: 1 where training disturbs the scores.
    """

    is_active: Tensor
    is_noisy: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.scores = nn.Parameter(initial_scores(weight))
        self.register_buffer("is_active", weight.new_zeros(()))
        self.register_buffer("is_noisy", weight.new_ones(()))

    @override
    def forward(self, weight: Tensor) -> Tensor:
        scores: Tensor = self.scores
        if self.training:
            draw = torch.rand_like(scores).clamp(1e-6, 1 - 1e-6)
            scores = scores + self.is_noisy * torch.logit(draw)
        return weight * self._masked(scores)

    def mask(self) -> Tensor:
        """Return the mask without noise, of zeros and ones, with a gradient to the scores."""
        return self._masked(self.scores)

    def _masked(self, scores: Tensor) -> Tensor:
        return threshold(scores) * self.is_active + (1 - self.is_active)

    def set_active(self, *, is_active: bool) -> None:
        """Let the mask count, or not."""
        self.is_active.fill_(float(is_active))

    def freeze(self) -> None:
        """Let the scores stand still: no noise, and no gradient that could move them."""
        self.is_noisy.fill_(0)
        self.scores.requires_grad_(False)
        self.scores.grad = None


@final
class RBLoss(CompressionLoss):
    """The squared distance of the density from the one that is asked for, in units of 0.05.

    Attributes:
        masks: The learned masks, each once.
        level: The level that is asked for.
    """

    def __init__(self, masks: Sequence[LearnedMask]) -> None:
        self.masks = tuple(masks)
        self.level = 0.0

    @override
    def __call__(self) -> Tensor:
        """Return `((kept / n - (1 - level)) / 0.05)^2`, with a gradient to all scores."""
        kept = torch.stack([one.mask().sum() for one in self.masks]).sum()
        total = sum(one.scores.numel() for one in self.masks)
        return ((kept / total - (1 - self.level)) / _WIDTH).square()


@final
class RBSparsityController(Controller):
    """Asks, by its loss, for the level that its scheduler sets; training then brings it about.

    Attributes:
        config: The algorithm's config.
        masks: The learned masks by parameter.
    """

    needs_loss: ClassVar[bool] = True

    def __init__(
        self,
        model: nn.Module,
        config: RBSparsityConfig,
        masks: Mapping[str, LearnedMask],
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.masks = dict(masks)
        self._rb_loss = RBLoss(list(self.masks.values()))
        self.compression_loss = self._rb_loss
        self.level = config.sparsity_init
        self.scheduler = sparsity_scheduler(self, config.params, reached=self._reached)

    @override
    def _apply(self, level: float) -> None:
        self._rb_loss.level = level
        for mask in self.masks.values():
            mask.set_active(is_active=level > 0)

    @override
    def _epoch_begun(self, epoch: int) -> None:
        if epoch >= self.config.params.sparsity_freeze_epoch:
            for mask in self.masks.values():
                mask.freeze()

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._rb_loss.level = self.level
        self._epoch_begun(self.scheduler.current_epoch)

    @override
    def statistics(self) -> SparsityStatistics:
        gone = {name: int((one.mask() == 0).sum()) for name, one in self.masks.items()}
        return sparsity_statistics(self.model, gone, self.level)

    def _reached(self) -> float:
        return self.statistics().level


@final
@register_algorithm(RBSparsityConfig)
class RBSparsityBuilder(Builder[RBSparsityConfig]):
    """Plans a learned mask on every weight of convolutions, linear layers and embeddings."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        return plan_on_weights(self, model, LearnedMask)

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> RBSparsityController:
        names = aliases(model)
        masks = {
            names[str(one.site)][0]: one.hook
            for one in insertions
            if isinstance(one.hook, LearnedMask)
        }
        return RBSparsityController(model, self.config, masks)

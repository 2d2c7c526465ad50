"""The controller of regularization-based sparsity, which learns masks under a loss on density.

Every weight has a score. It is kept if the score is above 0, and in training with probability
sigmoid(score). The gradient of the threshold is that of the sigmoid.

Source: NNCF 2.19, "RB-sparsity"; Louizos et al., "Learning sparse neural networks through L0
regularization", 2017, for the idea.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.algorithms.rb_sparsity.config import RBSparsityConfig
from nncfx.algorithms.rb_sparsity.mask import LearnedMask
from nncfx.controllers import (
    CompressionLoss,
    CompressionStage,
    Controller,
    SparsityStatistics,
    TrainingLoopWarning,
    sparsity_scheduler,
    sparsity_statistics,
)
from nncfx.controllers.base.shared_gradients import warn_unused_scores
from nncfx.schemes.masks.magnitude_masks import MagnitudeMasks

ALGORITHM = RBSparsityConfig.algorithm
_WIDTH = 0.05
"""Distance from the level at which the loss is 1 (NNCF's p); within it the level is reached."""


@final
class RBLoss(CompressionLoss):
    """The squared distance of the density from the requested density, in units of 0.05.

    Attributes:
        masks: The learned masks, each once.
        is_local: Whether the density is measured per mask; the loss is then the mean over masks.
        level: The requested level.
    """

    def __init__(self, masks: Sequence[LearnedMask], *, is_local: bool = False) -> None:
        self.masks = tuple(masks)
        self.is_local = is_local
        self.level = 0.0

    @override
    def __call__(self) -> Tensor:
        """Return `((kept / n - (1 - level)) / 0.05)^2`, with a gradient to all scores.

        It is 0 once the masks are frozen.
        """
        if not any(one.is_noisy for one in self.masks):
            return self.masks[0].scores.new_zeros(())
        sizes = [one.scores.numel() for one in self.masks]
        if self.is_local:
            shares = [one.kept() / size for one, size in zip(self.masks, sizes, strict=True)]
            density = torch.stack(shares)
        else:
            density = torch.stack([one.kept() for one in self.masks]).sum() / sum(sizes)
        return ((density - (1 - self.level)) / _WIDTH).square().mean()


@final
class RBSparsityController(Controller):
    """Adds a loss that drives training towards the level that its scheduler sets.

    `level` is the fraction of zeros that training has reached, and `target_level` the requested
    fraction. The model is fully compressed only once `level` is within 0.05 of it.

    Attributes:
        config: The algorithm's config.
        masks: The learned masks by parameter.
    """

    needs_loss: bool = True

    def __init__(
        self, model: nn.Module, config: RBSparsityConfig, masks: Mapping[str, LearnedMask]
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.masks = dict(masks)
        is_local = config.params.sparsity_level_setting_mode == "local"
        self._rb_loss = RBLoss(list(self.masks.values()), is_local=is_local)
        self.compression_loss = self._rb_loss
        self.level = config.sparsity_init
        self.scheduler = sparsity_scheduler(self, config.params, reached=self._level_now)

    @override
    def _apply(self, level: float) -> None:
        self._rb_loss.level = level
        for mask in self.masks.values():
            mask.set_active(is_active=level > 0)

    @override
    def _level_now(self) -> float:
        sizes = sum(one.scores.numel() for one in self.masks.values())
        return sum(self._gone().values()) / sizes

    def _gone(self) -> dict[str, int]:
        return {name: one.removed() for name, one in self.masks.items()}

    def _is_met(self) -> bool:
        return self.level >= self.target_level - _WIDTH

    @override
    def compression_stage(self) -> CompressionStage:
        holds = self.target_level if self._is_met() else self.level
        return CompressionStage.of(holds, self.scheduler.final_level)

    @override
    def _epoch_begun(self, epoch: int) -> None:
        was_learning = any(mask.is_noisy for mask in self.masks.values())
        self._freeze_when_due(epoch)
        if not was_learning or epoch < self.config.params.freeze_epoch:
            return
        warn_unused_scores(self.model, ALGORITHM)
        if self._is_met():
            self._meet_level()
        else:
            warnings.warn(
                f"The masks of rb_sparsity are frozen from now on, at {self.level:.0%} of the "
                f"weights instead of {self.target_level:.0%}: the scores moved too little. The "
                "gradient of a score falls with the number of weights, and SGD does not make up "
                "for it. Give it more steps, train with Adam, or raise "
                f"'compression_lr_multiplier' (now {self.config.lr_multiplier:g}).",
                TrainingLoopWarning,
                stacklevel=2,
            )

    def _meet_level(self) -> None:
        """Keep the weights of the highest scores, exactly as many as the level allows.

        The loss brings masks only within one to three percentage points; NNCF leaves them there.
        """
        probabilities = {name: one.scores.sigmoid() for name, one in self.masks.items()}
        scope = self.config.params.sparsity_level_setting_mode
        for name, stays in MagnitudeMasks(probabilities, self.target_level, scope=scope).items():
            self.masks[name].settle(stays)

    def _freeze_when_due(self, epoch: int) -> None:
        if epoch >= self.config.params.freeze_epoch:
            for mask in self.masks.values():
                mask.freeze()

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._rb_loss.level = self.target_level
        self._freeze_when_due(self.scheduler.schedule_epoch)

    @override
    def statistics(self) -> SparsityStatistics:
        return sparsity_statistics(self.model, self._gone(), self.target_level)

"""The controller of movement sparsity, which removes weights that fine-tuning moves to zero.

Every entry, block or row of a weight has a score. The gradient treats the mask as if it were the
score, so a score falls if the weight moves towards zero. Scores below a threshold are masked. The
threshold rises during a warm-up, after which the masks are frozen.

Source: Sanh et al., "Movement pruning", 2020, sections 4 and 5; Lagunas et al., "Block pruning
for faster transformers", 2021; NNCF 2.19, "Movement sparsity". Unlike NNCF: scores equal to the
threshold stay, so a warm-up can begin with untrained scores; convolutions are masked too; biases
have no scores, since a channel is only masked as a whole if nothing reads it.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.algorithms.movement_sparsity.config import (
    MovementSparsityConfig,
    MovementSparsityParams,
)
from nncfx.algorithms.movement_sparsity.mask import MovementMask, keep_highest, threshold_at
from nncfx.controllers import (
    CompressionLoss,
    CompressionStage,
    Controller,
    PolynomialSchedule,
    Scheduler,
    SparsityStatistics,
    StepCounter,
    TrainingLoopWarning,
    sparsity_statistics,
)
from nncfx.controllers.base.shared_gradients import warn_unused_scores
from nncfx.controllers.base.states import check_kinds
from nncfx.controllers.masks.whole_channels import whole_channel_masks
from nncfx.network import NNCFNetwork

ALGORITHM = MovementSparsityConfig.algorithm
_LAYER_WEIGHT = 0.5
_LITTLE = 0.05
"""A level this far below its target triggers no warning."""
_INITIAL_SPARSITY = 0.001
"""The level of the first threshold, unless one is given."""


@final
class ImportanceLoss(CompressionLoss):
    """The mean over the weights of half the mean sigmoid of their scores, times a block's size.

    Attributes:
        masks: The masks, each once.
        factor: Factor of the mean; 0 before and after the warm-up.
    """

    def __init__(self, masks: Sequence[MovementMask]) -> None:
        self.masks = tuple(masks)
        self.factor = 0.0

    @override
    def __call__(self) -> Tensor:
        parts = [
            torch.sigmoid(one.importance).mean() * (_LAYER_WEIGHT * math.prod(one.block))
            for one in self.masks
        ]
        return self.factor * torch.stack(parts).mean()


@final
class MovementScheduler(Scheduler):
    """Reports the progress of the warm-up at every epoch and step; there is no level.

    Attributes:
        params: When the warm-up begins and ends.
        steps: The steps within the epoch.
        first_threshold: The first threshold of the warm-up; None until it begins.
        on_progress: Called with the progress in [0, 1], from the first step of the warm-up on.
    """

    def __init__(
        self, params: MovementSparsityParams, on_progress: Callable[[float], None]
    ) -> None:
        super().__init__()
        self.params = params
        self.steps = StepCounter(params.steps_per_epoch)
        self.first_threshold = params.init_importance_threshold
        self.on_progress = on_progress

    @property
    @override
    def level(self) -> float:
        return 0.0

    @property
    @override
    def final_level(self) -> float:
        return 0.0

    @property
    def epoch(self) -> float:
        """The epoch, plus the passed fraction of it; -1 before the first epoch."""
        return self.current_epoch + self.steps.fraction

    @override
    def state_dict(self) -> dict[str, Any]:
        return (
            super().state_dict()
            | self.steps.state_dict()
            | {"first_threshold": self.first_threshold}
        )

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.steps.load_state_dict(state)
        check_kinds(state, {"first_threshold": (int, float, NoneType)})
        self.first_threshold = state["first_threshold"]

    def progress(self) -> float | None:
        """Return the progress of the warm-up in [0, 1]; None before it begins."""
        start, end = self.params.warmup_start_epoch, self.params.warmup_end_epoch
        if self.current_epoch < 0 or self.epoch < start:
            return None
        return min((self.epoch - start) / (end - start), 1.0)

    @override
    def _on_epoch(self) -> None:
        self.steps.begin_epoch(is_restarted=self.is_restarted)
        self._update()

    @override
    def _on_step(self) -> None:
        self.steps.begin_step()
        self._update()

    def _update(self) -> None:
        progress = self.progress()
        if progress is not None:
            self.on_progress(progress)


@final
class MovementSparsityController(Controller):
    """Raises threshold and loss factor during the warm-up, then freezes the masks.

    Its level, the fraction of zeros, can be read but not set.

    Attributes:
        config: The algorithm's config.
        masks: The hooks by parameter.
        is_settled: Whether the masks are frozen.
    """

    has_level: bool = False
    needs_loss: bool = True

    def __init__(
        self, model: nn.Module, config: MovementSparsityConfig, masks: Mapping[str, MovementMask]
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.masks = dict(masks)
        self.is_settled = False
        self._importance_loss = ImportanceLoss(list(self.masks.values()))
        self.compression_loss = self._importance_loss
        self._warm_up = MovementScheduler(config.params, self._go_on)
        self.scheduler = self._warm_up

    @override
    def _apply(self, level: float) -> None:
        """Do nothing, since the level cannot be set."""

    @override
    def _level_now(self) -> float:
        sizes = sum(one.mask.numel() for one in self.masks.values())
        return sum(self._gone().values()) / sizes

    @override
    def _target_now(self) -> float:
        target, progress = self.config.params.sparsity_target, self._warm_up.progress()
        if target is None or progress is None:
            return super()._target_now()
        return self._risen(0.0, target, progress)

    def _gone(self) -> dict[str, int]:
        return {name: one.gone() for name, one in self.masks.items()}

    @override
    def compression_stage(self) -> CompressionStage:
        if self.is_settled:
            return CompressionStage.FULLY_COMPRESSED
        is_on = self._warm_up.progress() is not None
        return CompressionStage.PARTIALLY_COMPRESSED if is_on else CompressionStage.UNCOMPRESSED

    @override
    def statistics(self) -> SparsityStatistics:
        return sparsity_statistics(self.model, self._gone(), self.target_level)

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        progress = self._warm_up.progress()
        self.is_settled = progress == 1
        self._importance_loss.factor = self._factor(progress or 0.0)
        for one in self.masks.values():
            one.importance.requires_grad_(not self.is_settled)

    @torch.no_grad()
    def _go_on(self, progress: float) -> None:
        if self.is_settled:
            return
        self._importance_loss.factor = self._factor(progress)
        threshold = self._threshold(progress)
        for one in self.masks.values():
            one.threshold.fill_(threshold)
        if progress == 1:
            self._end_warm_up()

    def _factor(self, progress: float) -> float:
        """Return the factor of the loss; 0 at the end, when scores are frozen."""
        if progress == 1:
            return 0.0
        return self._risen(0.0, self.config.params.importance_regularization_factor, progress)

    def _threshold(self, progress: float) -> float:
        params, scheduler = self.config.params, self._warm_up
        if params.sparsity_target is not None:
            return self._threshold_at(self._risen(0.0, params.sparsity_target, progress))
        last = params.final_importance_threshold
        if scheduler.first_threshold is None:
            # scores may already exceed the last threshold, and the threshold never falls
            scheduler.first_threshold = min(self._threshold_at(_INITIAL_SPARSITY), last)
        return self._risen(scheduler.first_threshold, last, progress)

    def _threshold_at(self, level: float) -> float:
        return threshold_at(level, self._importances())

    def _importances(self) -> list[tuple[Tensor, int]]:
        return [(one.importance, math.prod(one.block)) for one in self.masks.values()]

    def _risen(self, first: float, last: float, progress: float) -> float:
        power = self.config.params.power
        schedule = PolynomialSchedule(initial=first, target=last, epochs=1, power=power)
        return schedule.level(progress)

    def _end_warm_up(self) -> None:
        masks = self._final_masks()
        if self.config.params.enable_structured_masking:
            assert isinstance(self.model, NNCFNetwork)  # noqa: S101 (a controller handles one)
            masks |= whole_channel_masks(self.model, masks)
        for name, one in self.masks.items():
            one.freeze(masks[name])
        self.is_settled = True
        warn_unused_scores(self.model, ALGORITHM)
        target = self.config.params.sparsity_target
        if self.config.params.enable_structured_masking and target is not None:
            _warn_given_back(self.level, target)

    def _final_masks(self) -> dict[str, Tensor]:
        """Return the masks after the warm-up; a requested level is met exactly."""
        target = self.config.params.sparsity_target
        if target is None:
            return {name: one.effective() for name, one in self.masks.items()}
        # a threshold would keep all equal scores, such as those of dead neurons
        stays = keep_highest(target, self._importances())
        return {
            name: one.spread(kept).to(one.mask.dtype)
            for (name, one), kept in zip(self.masks.items(), stays, strict=True)
        }


def _warn_given_back(level: float, target: float) -> None:
    if level < target - _LITTLE:
        warnings.warn(
            f"The masks of movement_sparsity are frozen from now on, at {level:.0%} of the "
            f"weights instead of {target:.0%}: only channels that were masked as a whole stay "
            "masked. Set 'enable_structured_masking' to false, or let "
            "'sparse_structure_by_scopes' give whole rows a score.",
            TrainingLoopWarning,
            stacklevel=2,
        )

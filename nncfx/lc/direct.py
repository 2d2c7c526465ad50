"""Direct compression, and fine-tuning with fixed zeros: the baselines of L-C."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nncfx.lc.projection import Best, judge, project
from nncfx.lc.recovery import Recovered, RecoveryData, StepRecord, within
from nncfx.lc.training import Stepping, clip, scale_rate, seeded, train_epoch
from nncfx.lc.training_settings import TrainingSettings
from nncfx.schemes import SchemeLike, as_scheme
from nncfx.schemes.masks.exact_masks import check_at_least
from nncfx.storage.models.whole_models import require_whole
from nncfx.tracing.calls.model_copy import copy_of


@dataclass(frozen=True, kw_only=True)
class DC:
    """Direct compression: applies the scheme once, without training.

    Attributes:
        recalibration_batches: Minibatches over which batch norms re-estimate their statistics; 0:
            they do not change.
        seed: Of torch's generators during recovery; their state is restored.

    Raises:
        ArgumentError: a setting is out of range.
    """

    recalibration_batches: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least("recalibration_batches", self.recalibration_batches, 0)

    def recover(
        self, model: nn.Module, scheme: SchemeLike, level: float, data: RecoveryData
    ) -> Recovered:
        """Return a compressed copy of `model`.

        Raises:
            ArgumentError: the level is out of range.
            CompressionError: the scheme cannot compress the model, or the metric is NaN.
        """
        require_whole(model, "compressed")
        best = Best()
        with seeded(model, self.seed):
            projection = project(copy_of(model), as_scheme(scheme), level)
            metric = judge(projection, data, self.recalibration_batches)
        best.offer(projection, StepRecord(step=0, metric=metric))
        return best.recovered()


@dataclass(frozen=True, kw_only=True)
class DCFineTuned(TrainingSettings):
    """Direct compression, then training with fixed zeros.

    After each epoch the trained weights are compressed again and judged; the best result, direct
    compression included, is returned. Zeros of every constrained parameter are fixed, including
    those from before compression.

    Learning rate, optimizer, precision and seed are those of `TrainingSettings`.

    Attributes:
        epochs: Passes over the training data, at least 1.

    Raises:
        ArgumentError: a setting is out of range.

    Source: the fine-tuner of Condensa's library; it does not use Nesterov momentum.
    """

    epochs: int = 5

    def __post_init__(self) -> None:
        self._check(epochs=self.epochs)

    def recover(
        self, model: nn.Module, scheme: SchemeLike, level: float, data: RecoveryData
    ) -> Recovered:
        """Return the best compressed copy of `model` that fine-tuning finds.

        Raises:
            ArgumentError: the level is out of range, or there are no minibatches.
            CompressionError: the scheme cannot compress the model, or the loss or the metric is
                not finite.
        """
        require_whole(model, "compressed")
        pi = as_scheme(scheme)
        names = pi.parameters(model)
        best = Best()
        with seeded(model, self.seed):
            projection = project(copy_of(model), pi, level)
            metric = judge(projection, data, self.recalibration_batches)
            best.offer(projection, StepRecord(step=0, metric=metric))
            learner = copy_of(projection.model)
            zeros = _zeros(learner, names)
            optimizer = self._optimizer(learner, self.lr)
            stepping = Stepping(
                optimizer=optimizer,
                before_step=lambda: clip(learner, self.clip_norm),
                after_step=lambda: _hold(zeros),
                amp=self.amp,
            )
            decay = 1.0 if self.lr_end is None else (self.lr_end / self.lr) ** (1 / self.epochs)
            for epoch in range(self.epochs):
                told = within(data, f"epoch {epoch + 1} of {self.epochs}")
                loss = train_epoch(learner, data.train, told, stepping)
                learner.zero_grad(set_to_none=True)
                projection = project(copy_of(learner), pi, level)
                metric = judge(projection, told, self.recalibration_batches)
                record = StepRecord(
                    step=epoch + 1, metric=metric, loss=loss, learning_rate=self.lr * decay**epoch
                )
                best.offer(projection, record)
                if data.stop(best.history):
                    break
                scale_rate(optimizer, decay)
        return best.recovered()


def _zeros(model: nn.Module, names: frozenset[str]) -> list[tuple[nn.Parameter, Tensor]]:
    """Return the constrained parameters that have zeros, each with the mask of its zeros."""
    masks = [(p, p.detach() == 0) for name, p in model.named_parameters() if name in names]
    return [(parameter, mask) for parameter, mask in masks if bool(mask.any())]


@torch.no_grad()
def _hold(zeros: list[tuple[nn.Parameter, Tensor]]) -> None:
    for parameter, mask in zeros:
        parameter.masked_fill_(mask, 0)

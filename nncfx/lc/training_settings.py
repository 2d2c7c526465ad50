"""The settings shared by all recovery methods that train."""

import math
from dataclasses import dataclass, fields
from typing import Any

from torch import nn
from torch.optim import Optimizer

from nncfx.errors import ArgumentError
from nncfx.lc.nesterov import Nesterov, OptimizerFactory
from nncfx.lc.training import AMP
from nncfx.schemes.masks.exact_masks import check_at_least


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How minibatches update the weights, in every recovery method that trains.

    A value out of range (an `lr` that is not above 0, a negative count) is an `ArgumentError` of
    the recovery method that uses the settings.

    Attributes:
        lr: Initial learning rate: of each L step in `LC`, of each iteration in `ADMM`, of the
            whole training in `DCFineTuned`; above 0.
        lr_end: Final learning rate of the same, reached geometrically; None: constant.
        momentum: Of the built-in Nesterov SGD; None: 0.9.
        weight_decay: Of the built-in SGD; None: 0.
        optimizer_factory: `(parameters, lr) -> Optimizer`, instead of the built-in SGD.
        clip_norm: The gradient, including a penalty, is scaled down to this norm; None: never.
        recalibration_batches: Minibatches over which the compressed model's batch norms
            re-estimate their statistics; 0: they keep those of training.
        amp: "bfloat16" or "float16" for mixed precision in training; None: the dtype of the model.
        seed: Of torch's generators during recovery (shuffling, dropout); their state is restored.
    """

    lr: float = 0.01
    lr_end: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    optimizer_factory: OptimizerFactory | None = None
    clip_norm: float | None = None
    recalibration_batches: int = 0
    amp: str | None = None
    seed: int = 0

    def shared(self) -> dict[str, Any]:
        """Return these settings by name, as arguments of another recovery method."""
        return {field.name: getattr(self, field.name) for field in fields(TrainingSettings)}

    def _check(self, **counts: int) -> None:
        """Refuse settings out of range, and `counts` below 1.

        Raises:
            ArgumentError: there is one, `amp` is not a 16-bit dtype, or both an optimizer factory
                and settings that it replaces are given.
        """
        for name, count in counts.items():
            check_at_least(name, count, 1)
        check_at_least("recalibration_batches", self.recalibration_batches, 0)
        for name in ("lr", "lr_end", "clip_norm"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ArgumentError(f"{name} is {value!r}; it must be above 0 and finite.")
        momentum, decay = self.momentum, self.weight_decay
        if momentum is not None and not 0 <= momentum < 1:
            raise ArgumentError(f"momentum is {momentum!r}; it lies in [0, 1). Usual is 0.9.")
        if decay is not None and not 0 <= decay < math.inf:
            raise ArgumentError(
                f"weight_decay is {decay!r}; it must be at least 0. Usual is 5e-4."
            )
        if self.amp not in (None, *AMP):
            raise ArgumentError(
                f"amp is {self.amp!r}; it is the dtype that training may compute in. Use "
                f"'bfloat16' or 'float16', or None for the model's own."
            )
        if self.optimizer_factory is not None and (momentum is not None or decay is not None):
            raise ArgumentError(
                "optimizer_factory comes with momentum or weight_decay, which only the built-in "
                "optimizer reads. Set them inside the factory, for instance "
                "lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=0.9)."
            )

    def _optimizer(self, model: nn.Module, lr: float) -> Optimizer:
        """Return the factory's optimizer for the trainable parameters, or `Nesterov` without one.

        Raises:
            ArgumentError: no parameter is trainable.
        """
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not trainable:
            raise ArgumentError(
                "No parameter of the model requires a gradient, so nothing can be trained. Set "
                "requires_grad_(True) on what may be trained, or take DC()."
            )
        if self.optimizer_factory is not None:
            return self.optimizer_factory(trainable, lr)
        return Nesterov(
            trainable,
            lr,
            momentum=0.9 if self.momentum is None else self.momentum,
            weight_decay=self.weight_decay or 0.0,
        )

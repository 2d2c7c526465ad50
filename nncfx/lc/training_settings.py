"""The settings shared by all recovery methods that train."""

from dataclasses import dataclass, fields
from typing import Any

from nncfx.lc.nesterov import OptimizerFactory


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

"""ADMM: the alternating direction method of multipliers, followed by masked retraining."""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from nncfx.lc.direct import DCFineTuned
from nncfx.lc.lc import LC
from nncfx.lc.recovery import Recovered, RecoveryData
from nncfx.lc.training_settings import TrainingSettings
from nncfx.schemes import SchemeLike
from nncfx.schemes.masks.exact_masks import check_at_least


@dataclass(frozen=True, kw_only=True)
class ADMM(TrainingSettings):
    """Recovers accuracy by ADMM: L-C with a constant penalty, then retraining with fixed zeros.

    With scaled duals u, each iteration trains `L(w) + rho/2 |w - z + u|^2`, projects `z = Pi(w +
    u)`, and adds `w - z` to u. That is L-C's iteration with `mu = rho` and `lambda = -rho u`, so
    `LC` runs it. Since rho does not grow, w does not reach z; therefore the best z is retrained
    with its zeros fixed. The best result of all is returned, among equal ones the earliest.

    Learning rate, optimizer, precision and seed are those of `TrainingSettings`.

    Attributes:
        iterations: ADMM iterations after direct compression, at least 1.
        rho: The penalty parameter; above 0.
        mb_iterations: Minibatches per iteration.
        retraining_epochs: Passes over the training data with fixed zeros; 0: none.
        retraining_lr: Learning rate of retraining; None: `lr`. It also falls to `lr_end`.
        resume_folder: As in `LC`; retraining starts over.

    Raises:
        ArgumentError: a setting is out of range.

    Source: Boyd et al. (2011), section 3.1.1; Zhang et al. (2018), A Systematic DNN Weight Pruning
    Framework using ADMM, section 3.
    """

    iterations: int = 10
    rho: float = 1e-2
    mb_iterations: int = 1000
    retraining_epochs: int = 0
    retraining_lr: float | None = None
    resume_folder: str | Path | None = None

    def __post_init__(self) -> None:
        check_at_least("iterations", self.iterations, 1)
        check_at_least("retraining_epochs", self.retraining_epochs, 0)
        self._learning()
        self._retraining()

    def recover(
        self, model: nn.Module, scheme: SchemeLike, level: float, data: RecoveryData
    ) -> Recovered:
        """Return the best compressed copy of `model` that ADMM and retraining find.

        Raises:
            ArgumentError: the level is out of range, or there are no minibatches.
            CompressionError: the scheme cannot compress the model, or the loss or the metric is
                not finite.
        """
        learned = self._learning().recover(model, scheme, level, data)
        if not self.retraining_epochs:
            return learned
        tuned = self._retraining().recover(learned.model, scheme, level, data)
        best = tuned if tuned.metric > learned.metric else learned
        passed = len(learned.history) - 1
        epochs = (replace(one, step=one.step + passed) for one in tuned.history[1:])
        return replace(best, history=(*learned.history, *epochs))

    def _learning(self) -> LC:
        return LC(
            steps=self.iterations + 1,
            mb_iterations_per_l=self.mb_iterations,
            mu_init=self.rho,
            mu_multiplier=1.0,
            resume_folder=self.resume_folder,
            **self.shared(),
        )

    def _retraining(self) -> DCFineTuned:
        rate = self.lr if self.retraining_lr is None else self.retraining_lr
        return DCFineTuned(epochs=max(self.retraining_epochs, 1), **(self.shared() | {"lr": rate}))

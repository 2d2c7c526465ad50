"""L-C: alternates learning and compression steps, coupled by an augmented Lagrangian."""

import itertools
import math
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from nncfx.errors import ArgumentError, CompressionError, require_truths
from nncfx.lc.data_fingerprint import data_fingerprint
from nncfx.lc.lagrangian import Lagrangian, Penalized, next_mu
from nncfx.lc.projection import Best, Projection, judge, project
from nncfx.lc.recovery import Recovered, RecoveryData, StepRecord, within
from nncfx.lc.training import Stepping, clip, minibatches, scale_rate, seeded, train_epoch
from nncfx.lc.training_settings import TrainingSettings
from nncfx.lc.unfinished import Unfinished, identity
from nncfx.schemes import Scheme, SchemeLike, as_scheme
from nncfx.storage.models.whole_models import require_whole
from nncfx.tracing.calls.model_copy import copy_of


@dataclass(frozen=True, kw_only=True)
class LC(TrainingSettings):
    """Recovers accuracy by the L-C algorithm: `min L(w)` subject to `w = decompress(theta)`.

    Iteration 0 is direct compression. Every later iteration trains the uncompressed weights w with
    the penalty `mu/2 |w - theta|^2 - lambda . (w - theta)` (L step), compresses `w - lambda / mu`
    (C step), and updates lambda. The compressed model with the best metric is returned; among
    equal ones the earliest.

    Known errors of Condensa's library are not reproduced: the user's model is copied; biases and
    norm parameters that a scheme zeroes are penalised too, unless `penalize` is "weights";
    optimizer state is fresh in every L step for any optimizer; the best model is chosen by the
    user's metric, not the loss, and judged in the working dtype; frozen parameters are only
    compressed.

    Learning rate, optimizer, precision and seed are those of `TrainingSettings`.

    Attributes:
        steps: L-C iterations including iteration 0, at least 1.
        lr_decay: Factor on `lr` in every L-C iteration; iteration j starts with `lr_decay ** j`.
        lr_milestones: L-C iterations after each of which `lr_multiplier` is also applied.
        lr_multiplier: Factor on `lr` after each milestone.
        mb_iterations_per_l: Minibatches per L step.
        mb_iterations_first_l: Minibatches of the first L step; None: as in all others.
        mu_init: Penalty parameter of iteration 1; above 0.
        mu_multiplier: Factor from one iteration to the next, at least 1.
        mu_cap: mu stops growing once it exceeds this.
        multipliers: False: the quadratic penalty method, lambda stays 0.
        penalize: "all" pulls every constrained parameter to its compressed value; "weights" only
            those with at least two axes, as Condensa's library does: biases are compressed, but
            trained by the loss alone.
        resume_folder: Where the state is saved after every iteration. After a kill the same call
            continues from it and ends with bitwise the same result, provided that the data are the
            same and are shuffled by torch's global generator, whose state is saved too. The file
            is removed at the end. None: nothing is saved.

    Raises:
        ArgumentError: a setting is out of range.

    Source: Condensa (Joseph et al. 2020), section 3.2; Carreira-Perpinan and Idelbayev (2018).
    """

    steps: int = 30
    lr_decay: float = 1.0
    lr_milestones: tuple[int, ...] = ()
    lr_multiplier: float = 0.1
    mb_iterations_per_l: int = 1000
    mb_iterations_first_l: int | None = None
    mu_init: float = 1e-3
    mu_multiplier: float = 1.1
    mu_cap: float = 1e4
    multipliers: bool = True
    penalize: Penalized = "all"
    resume_folder: str | Path | None = None

    def __post_init__(self) -> None:
        require_truths(self)
        self._check(
            steps=self.steps,
            mb_iterations_per_l=self.mb_iterations_per_l,
            mb_iterations_first_l=self._iterations(1),
        )
        if self.penalize not in {"weights", "all"}:
            raise ArgumentError(
                f"penalize is {self.penalize!r}; the penalty draws the 'weights' only or 'all' "
                "parameters that the scheme constrains."
            )
        above_zero = (self.mu_init, self.lr_decay, self.lr_multiplier)
        if not all(0 < value < math.inf for value in above_zero) or not self.mu_multiplier >= 1:
            raise ArgumentError(
                f"mu_init is {self.mu_init!r}, lr_decay {self.lr_decay!r}, lr_multiplier "
                f"{self.lr_multiplier!r} and mu_multiplier {self.mu_multiplier!r}; the last must "
                "be at least 1 and the others above 0, or training stops or never draws the "
                "weights to the compressed ones. Usual are 1e-3, 1, 0.1 and 1.1."
            )

    def recover(
        self, model: nn.Module, scheme: SchemeLike, level: float, data: RecoveryData
    ) -> Recovered:
        """Return the best compressed copy of `model` that L-C finds at `level`.

        Raises:
            ArgumentError: the level is out of range, or there are no minibatches.
            CompressionError: the scheme cannot compress the model, or the loss or the metric is
                not finite.
            StorageError: the state in `resume_folder` cannot be written or read.
        """
        require_whole(model, "compressed")
        pi = as_scheme(scheme)
        learner = copy_of(model)
        learner.zero_grad(set_to_none=True)
        unfinished = Unfinished(self.resume_folder, self._identity(model, pi, level, data))
        names = pi.parameters(learner)
        lagrangian = Lagrangian.of(
            learner, names, multipliers=self.multipliers, penalize=self.penalize
        )
        best = Best()
        with seeded(model, self.seed):
            for step in range(unfinished.restore(learner, lagrangian, best), self.steps):
                told = within(data, f"L-C step {step} of {self.steps - 1}" if step else "L-C")
                loss = self._learn(learner, lagrangian, step, told) if step else None
                projection = _compress(learner, lagrangian, pi, level)
                metric = judge(projection, told, self.recalibration_batches)
                record = StepRecord(
                    step=step,
                    metric=metric,
                    loss=loss,
                    learning_rate=self._rate(step) if step else 0.0,
                    mu=lagrangian.mu,
                    distance=lagrangian.distance(),
                )
                best.offer(projection, record)
                lagrangian.mu = self._next_mu(lagrangian.mu)
                unfinished.save(learner, lagrangian, best)
                if data.stop(best.history):
                    break
        unfinished.discard()
        return best.recovered()

    def _identity(self, model: nn.Module, scheme: Scheme, level: float, data: RecoveryData) -> str:
        """Return an identifier of this recovery; empty if nothing is saved."""
        if self.resume_folder is None:
            return ""
        settings = vars(self) | {"scheme": scheme, "level": level, "resume_folder": None}
        if self.penalize == "all":
            del settings["penalize"]  # absent from the identity in files of older versions
        settings["data"] = sorted(data_fingerprint(data.train).items())
        return identity(model, settings)

    def _iterations(self, step: int) -> int:
        """Return the number of minibatches in L step `step`."""
        if step == 1 and self.mb_iterations_first_l is not None:
            return self.mb_iterations_first_l
        return self.mb_iterations_per_l

    def _rate(self, step: int) -> float:
        """Return the learning rate at the start of L step `step`."""
        passed = sum(milestone < step for milestone in self.lr_milestones)
        return self.lr * self.lr_decay**step * self.lr_multiplier**passed

    def _next_mu(self, mu: float) -> float:
        return next_mu(mu, initial=self.mu_init, multiplier=self.mu_multiplier, cap=self.mu_cap)

    def _learn(
        self, learner: nn.Module, lagrangian: Lagrangian, step: int, data: RecoveryData
    ) -> float:
        """Train the weights with the penalty, in place; return the mean loss."""
        count, rate = self._iterations(step), self._rate(step)
        decay = 1.0 if self.lr_end is None else (self.lr_end / rate) ** (1 / count)
        optimizer = self._optimizer(learner, rate)

        def penalize() -> None:
            lagrangian.add_gradient()
            clip(learner, self.clip_norm)

        try:
            return train_epoch(
                learner,
                itertools.islice(minibatches(data.train), count),
                data,
                Stepping(
                    optimizer=optimizer,
                    before_step=penalize,
                    after_step=lambda: scale_rate(optimizer, decay),
                    amp=self.amp,
                ),
            )
        except CompressionError as error:
            raise CompressionError(f"In L-C iteration {step}: {error}") from error


def _compress(learner: nn.Module, lagrangian: Lagrangian, pi: Scheme, level: float) -> Projection:
    """Do the C step: project `w - lambda / mu`, and update the Lagrangian."""
    learner.zero_grad(set_to_none=True)
    theta = copy_of(learner)
    lagrangian.shift(theta)
    projection = project(theta, pi, level)
    lagrangian.update(dict(projection.model.named_parameters()))
    return projection

"""A training loop for compressed models that saves checkpoints and can be resumed."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from nncfx.controllers import Controller
from nncfx.errors import CompressionError
from nncfx.runtimes.protocol.named_inputs import examples_in
from nncfx.tracing import run
from nncfx.training.loop_checkpoint import HasState, TrainingFile, settings_text
from nncfx.training.recipe import Recipe

Batches = Callable[[int], tuple[Any, Any]]
"""Maps the number of a step, counted from 0, to its inputs and targets."""
Criterion = Callable[[Any, Any], Tensor]
"""Maps outputs and targets to the loss, a scalar."""


@final
@dataclass(frozen=True, kw_only=True)
class TrainingProgress:
    """The report at the end of each epoch of the scheduler.

    Attributes:
        step: Steps done.
        steps: Steps in total.
        loss: The mean loss since the last report, including the controller's.
        level: Of the controller.
        examples_per_s: Since the last report.
    """

    step: int
    steps: int
    loss: float
    level: float
    examples_per_s: float


@final
class Training:
    """Trains the model of a controller by a recipe.

    If stopped at any moment and started again with the same arguments and the same `checkpoint`,
    it continues from the last checkpoint and ends with the same bits, on the same machine and
    number of threads.

    Args:
        controller: From `nncfx.create_compressed_model`; its model is trained in place.
        batches: A function of the step, such as `AugmentedImages`, so that it has no state to
            save.
        criterion: The loss of the task.
        recipe: How to train.
        checkpoint: The file of the unfinished training; None: no checkpoints.
        checkpoint_seconds: The interval between checkpoints, taken at the end of a step; 0: after
            each step.

    Attributes:
        step: Steps done.

    Raises:
        StorageError: the file of `checkpoint` is damaged, or belongs to another training.
    """

    def __init__(
        self,
        controller: Controller,
        batches: Batches,
        criterion: Criterion,
        recipe: Recipe,
        checkpoint: str | os.PathLike[str] | None = None,
        *,
        checkpoint_seconds: float = 120.0,
    ) -> None:
        self.controller = controller
        self.recipe = recipe
        self._batches, self._criterion = batches, criterion
        self._model: nn.Module = controller.model
        self._device = next(self._model.parameters()).device
        self._optimizer = torch.optim.SGD(
            controller.parameter_groups(lr=recipe.lr),
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.momentum > 0,
        )
        self._rates = [group["lr"] / recipe.lr for group in self._optimizer.param_groups]
        self._parts: dict[str, HasState] = {
            "model": self._model,
            "optimizer": self._optimizer,
            "controller": controller,
        }
        self._checkpoint_seconds = checkpoint_seconds
        file = None if checkpoint is None else Path(checkpoint)
        self._file = TrainingFile(file, settings_text((recipe, controller.configs)))
        self.step = self._file.restore(self._parts)
        self._loss = torch.zeros((), dtype=torch.float32, device=self._device)
        self._counted, self._examples = 0, 0

    def run(
        self,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_progress: Callable[[TrainingProgress], None] = lambda _: None,
    ) -> bool:
        """Train to the end and return True, or until `should_stop` and return False.

        Args:
            should_stop: Called before every step; the state is saved if it returns True.
            on_progress: Called at the end of each epoch of the scheduler.

        Raises:
            CompressionError: the loss is not finite.
            StorageError: the checkpoint cannot be written.
        """
        if self.step < self.recipe.steps:
            self._file.check()
        self._model.train()
        saved = began = time.monotonic()
        while self.step < self.recipe.steps:
            if should_stop():
                self._file.save(self.step, self._parts)
                return False
            self._one_step()
            now = time.monotonic()
            if self.step % self.recipe.steps_per_epoch == 0 or self.step == self.recipe.steps:
                on_progress(self._progress(now - began))
                began = now
            if now - saved >= self._checkpoint_seconds or self.step == self.recipe.steps:
                self._file.save(self.step, self._parts)
                saved = now
        return True

    def _one_step(self) -> None:
        if self.step % self.recipe.steps_per_epoch == 0:
            self.controller.scheduler.epoch_step()
        self.controller.scheduler.step()
        rate = self.recipe.learning_rate(self.step)
        for group, factor in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        inputs, targets = pytree.tree_map_only(
            Tensor, lambda one: one.to(self._device), tuple(self._batches(self.step))
        )
        dtype = self.recipe.dtype(self._device)
        with torch.autocast(self._device.type, dtype=dtype, enabled=dtype != torch.float32):
            loss = self._criterion(run(self._model, inputs), targets) * self.recipe.task_weight
            loss = loss + self.controller.loss()
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        self._optimizer.step()
        self._loss += loss.detach()
        self._counted += 1
        self._examples += examples_in(inputs)
        self.step += 1

    def _progress(self, seconds: float) -> TrainingProgress:
        loss = float(self._loss) / self._counted
        if not math.isfinite(loss):
            raise CompressionError(
                f"The training loss became {loss} before step {self.step}, at a learning rate of "
                f"{self.recipe.learning_rate(self.step - 1):g}. Lower lr."
            )
        progress = TrainingProgress(
            step=self.step,
            steps=self.recipe.steps,
            loss=loss,
            level=self.controller.level,
            examples_per_s=self._examples / max(seconds, 1e-9),
        )
        self._loss.zero_()
        self._counted, self._examples = 0, 0
        return progress

"""Accuracy-aware training, which stops early or adapts the level to an accuracy budget."""

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any, Final, final

from nncfx.config import AccuracyAwareParams, AccuracyAwareTraining
from nncfx.controllers.base.controller import Controller
from nncfx.controllers.base.stage import CompressionStage
from nncfx.errors import ArgumentError
from nncfx.objectives.number import one_number

_DIGITS: Final = 9
"""Digits to which levels are rounded: finer than any step, coarser than errors of sums."""


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingTask:
    """The user's functions for training and validation of the model.

    Attributes:
        train_epoch: Trains one epoch, given its number from 0; calls the controller's scheduler
            and adds its loss, as in any loop.
        validate: Returns the accuracy, higher is better.
        dense_accuracy: The accuracy of the uncompressed model.
        scale_lr: Multiplies the learning rate by a factor from now on; if it is None,
            `lr_reduction_factor` must not be set.
    """

    train_epoch: Callable[[int], object]
    validate: Callable[[], float]
    dense_accuracy: float
    scale_lr: Callable[[float], object] | None = None


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracyAwareEpoch:
    """The level of one epoch, and the accuracy after it."""

    level: float
    accuracy: float


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracyAwareResult:
    """The outcome of training; the model has the weights of that epoch.

    Attributes:
        level: The level reached.
        accuracy: The accuracy at that level.
        is_within_budget: Whether the accuracy is within the budget.
        epochs: All epochs, in order.
    """

    level: float
    accuracy: float
    is_within_budget: bool
    epochs: tuple[AccuracyAwareEpoch, ...]


def train_to_accuracy(
    controller: Controller, settings: AccuracyAwareTraining, task: TrainingTask
) -> AccuracyAwareResult:
    """Train by `settings`, restore the best weights, and return the outcome.

    Mode "early_exit": epochs follow the schedule until, at its final level, the accuracy is
    within the budget. Mode "adaptive_compression_level": after the initial phase the schedule is
    held, and each level gets `patience_epochs` to come within the budget. If it does, the level
    increases by a step, else it decreases; each time the direction changes, step and learning rate
    are reduced, until the step is below its minimum. The best epoch has the highest level within
    the budget, then the highest accuracy.

    Raises:
        ArgumentError: the algorithms have no level to adapt, or an accuracy is not a finite
            number, or the budget allows losing all accuracy, or `lr_reduction_factor` is set and
            the task cannot scale its learning rate.

    Source: NNCF 2.19, "Accuracy-aware training".
    """
    run = _Run(controller, settings.params, task)
    if settings.mode == "early_exit":
        run.until_within_budget()
    else:
        run.adapt_level()
    return run.result()


class _Run:
    def __init__(
        self, controller: Controller, params: AccuracyAwareParams, task: TrainingTask
    ) -> None:
        self._controller = controller
        self._params = params
        self._task = task
        self._least = _least_accuracy(params, _number(task.dense_accuracy, "dense_accuracy is"))
        limit = 10_000
        self._limit = params.maximal_total_epochs or limit
        self._epochs: list[AccuracyAwareEpoch] = []
        self._best: tuple[tuple[bool, float, float], dict[str, Any], dict[str, Any]] | None = None

    @property
    def _is_over(self) -> bool:
        return len(self._epochs) >= self._limit

    def until_within_budget(self) -> None:
        while not self._is_over:
            accuracy = self._epoch(counts=self._is_full)
            if self._is_full() and accuracy >= self._least:
                return

    def _is_full(self) -> bool:
        return self._controller.compression_stage() is CompressionStage.FULLY_COMPRESSED

    def adapt_level(self) -> None:
        params, controller = self._params, self._controller
        if not controller.has_level:
            raise ArgumentError(
                f"'{controller.algorithm}' has no level that could be adapted. Use mode "
                "'early_exit', or an algorithm with a level."
            )
        if params.lr_reduction_factor is not None and self._task.scale_lr is None:
            raise ArgumentError(
                "'lr_reduction_factor' is set, but the task does not say how to scale its "
                "learning rate. Give TrainingTask a scale_lr, or leave the factor out."
            )
        for _ in range(params.initial_training_phase_epochs or 0):
            if self._is_over:
                return
            self._epoch()
        controller.scheduler.hold()
        self._search()

    def _search(self) -> None:
        params, controller = self._params, self._controller
        first, reduction, least = 0.1, 0.5, 0.025
        step = params.initial_compression_rate_step or first
        minimum = params.minimal_compression_rate_step or least
        last = self._epochs[-1].accuracy if self._epochs else -math.inf
        was_up: bool | None = None
        while not self._is_over:
            is_up = last >= self._least
            if was_up is not None and is_up != was_up:
                step *= params.compression_rate_step_reduction_factor or reduction
                self._reduce_lr()
            if step < minimum:
                return
            # never return to a level that is known to be within the budget, nor to no compression
            # (rounded, as ten steps of a tenth sum to less than 1)
            level = round(controller.target_level + (step if is_up else -step), _DIGITS)
            if not 0 <= level < 1:
                return
            was_up, controller.level = is_up, level
            last = self._within_patience()

    def _within_patience(self) -> float:
        """Train at this level until within the budget or out of patience; return the accuracy."""
        accuracy = -math.inf
        for _ in range(self._params.patience_epochs or 1):
            if self._is_over:
                break
            accuracy = self._epoch()
            if accuracy >= self._least:
                break
        return accuracy

    def _reduce_lr(self) -> None:
        if self._task.scale_lr is not None:
            half = 0.5
            self._task.scale_lr(self._params.lr_reduction_factor or half)

    def _epoch(self, counts: Callable[[], bool] = lambda: True) -> float:
        self._task.train_epoch(len(self._epochs))
        found = self._task.validate()
        accuracy = _number(found, f"After epoch {len(self._epochs)} validate returned")
        controller = self._controller
        self._epochs.append(AccuracyAwareEpoch(level=controller.level, accuracy=accuracy))
        is_within = counts() and accuracy >= self._least
        # outside the budget only the accuracy counts
        rank = (is_within, controller.level if is_within else float(counts()), accuracy)
        if self._best is None or rank > self._best[0]:
            weights = copy.deepcopy(controller.model.state_dict())
            self._best = rank, weights, controller.state_dict()
        return accuracy

    def result(self) -> AccuracyAwareResult:
        if self._best is None:
            raise ArgumentError("There was no epoch. Allow at least one.")
        (is_within, _, accuracy), weights, state = self._best
        scheduler = self._controller.scheduler.state_dict()
        self._controller.model.load_state_dict(weights)
        self._controller.load_state_dict(state)
        # keep the scheduler's counts; only the level is restored to the best epoch's
        self._controller.scheduler.load_state_dict(scheduler)
        return AccuracyAwareResult(
            level=self._controller.level,
            accuracy=accuracy,
            is_within_budget=is_within,
            epochs=tuple(self._epochs),
        )


def _least_accuracy(params: AccuracyAwareParams, dense: float) -> float:
    """Return the least accuracy within the budget.

    Raises:
        ArgumentError: the accuracy is a fraction and the budget allows losing all of it.
    """
    budget = params.maximal_absolute_accuracy_degradation
    if budget is not None and 0 < dense <= min(budget, 1):
        raise ArgumentError(
            f"maximal_absolute_accuracy_degradation is {budget}, and dense_accuracy is {dense:.4g}"
            f", a fraction, so every model would do. Write {budget / 100:g} for {budget:g} "
            "percent of accuracy, or let dense_accuracy and validate be in percent."
        )
    return params.least_accuracy(dense)


def _number(found: float, what: str) -> float:
    """Return an accuracy as a float; `what` begins the error message.

    Raises:
        ArgumentError: it is not a finite number.
    """
    try:
        accuracy = one_number(found)  # it may be a tensor
    except ValueError as error:
        raise ArgumentError(
            f"{what} {found!r}; an accuracy is one number, higher is better. Give that number "
            "alone."
        ) from error
    if not math.isfinite(accuracy):
        raise ArgumentError(
            f"{what} {accuracy}; an accuracy is a finite number. Look at the loss: training may "
            "have diverged."
        )
    return accuracy

"""Schedulers, which count epochs and steps and set the level of a controller.

Call `epoch_step` at the beginning of each epoch and `step` at the beginning of each optimizer
step, as in NNCF since 1.6.
"""

import abc
import warnings
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Protocol, final, runtime_checkable

from typing_extensions import override

from nncfx.controllers.base.loop_watch import LoopWatch, TrainingLoopWarning
from nncfx.controllers.base.schedules import Schedule
from nncfx.controllers.base.states import check_keys, check_kinds
from nncfx.errors import ArgumentError


@final
class StepCounter:
    """Counts optimizer steps within an epoch; the first epoch determines its length if not given.

    Attributes:
        steps_per_epoch: Optimizer steps in an epoch; None until known.
        counting_epochs: Number of epochs that are used only to count steps: 0 if the number of
            steps is given, else 1.
    """

    def __init__(self, steps_per_epoch: int | None = None) -> None:
        self.steps_per_epoch = steps_per_epoch
        self.counting_epochs = int(steps_per_epoch is None)
        self._begun = 0

    @property
    def fraction(self) -> float:
        """The passed fraction of the epoch, in [0, 1]; 0 while it is unknown."""
        if self.steps_per_epoch is None:
            return 0.0
        return min(max(self._begun - 1, 0) / self.steps_per_epoch, 1.0)

    def begin_epoch(self, *, is_restarted: bool = False) -> None:
        """Restart the count; a whole, not restarted epoch determines the steps per epoch."""
        if self.steps_per_epoch is None and self._begun > 0 and not is_restarted:
            self.steps_per_epoch = self._begun
        self._begun = 0

    def begin_step(self) -> None:
        """Count a step."""
        self._begun += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        return {"steps_begun": self._begun, "steps_per_epoch": self.steps_per_epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the counts from `state`."""
        check_kinds(state, {"steps_begun": (int,), "steps_per_epoch": (int, NoneType)})
        self._begun = state["steps_begun"]
        self.steps_per_epoch = state["steps_per_epoch"]


class HasLevel(Protocol):
    """An object whose level a scheduler can read and set."""

    level: float


@runtime_checkable
class HasTargetLevel(Protocol):
    """An object that may not reach the level it was set to, and also has that level."""

    @property
    def target_level(self) -> float:
        """The level that was set last."""


class Scheduler(abc.ABC):
    """Counts epochs and steps.

    Attributes:
        current_epoch: Epochs begun, minus one: -1 before the first.
        current_step: Optimizer steps begun, minus one: -1 before the first.
        watch: Notified of every call; None if there is no watch.
        is_restarted: Whether the current epoch was begun before, as in a training that was killed
            within it; the epoch then counts once, and its steps are counted again.
        is_held: Whether epochs and steps are only counted, without changing the level.
        on_epoch: Called with `schedule_epoch`, after the level is set.
        before: Called before an epoch or a step is counted; can raise an error.
    """

    def __init__(self) -> None:
        self.current_epoch = -1
        self.current_step = -1
        self.is_restarted = False
        self.is_held = False
        self.watch: LoopWatch | None = None
        self.on_epoch: Callable[[int], None] | None = None
        self.before: Callable[[], None] | None = None

    @property
    @abc.abstractmethod
    def level(self) -> float:
        """The present level."""

    @property
    @abc.abstractmethod
    def final_level(self) -> float:
        """The level at the end."""

    @property
    def schedule_epoch(self) -> int:
        """The present epoch of the schedule, which excludes epochs used only to count steps."""
        return self.current_epoch

    def epoch_step(self, next_epoch: int | None = None) -> None:
        """Begin the next epoch, or `next_epoch`, and set its level.

        If it is the current epoch, it begins again, as after a checkpoint within it.

        Raises:
            ArgumentError: `next_epoch` is negative.
        """
        if self.before is not None:
            self.before()
        if self.watch is not None:
            self.watch.epoch_begins()
        epoch = _count("next_epoch", next_epoch, self.current_epoch + 1)
        self.is_restarted = epoch == self.current_epoch
        self.current_epoch = epoch
        if not self.is_held:
            self._on_epoch()
        if self.on_epoch is not None:
            self.on_epoch(self.schedule_epoch)

    def step(self, next_step: int | None = None) -> None:
        """Begin the next optimizer step, or `next_step`.

        Raises:
            ArgumentError: `next_step` is negative.
        """
        if self.before is not None:
            self.before()
        if self.watch is not None:
            self.watch.step_begins(self.current_epoch)
        self.current_step = _count("next_step", next_step, self.current_step + 1)
        if not self.is_held:
            self._on_step()

    def hold(self) -> None:
        """Stop setting the level, and only count from now on."""
        self.is_held = True

    def state_dict(self) -> dict[str, Any]:
        """Return the counts as plain values that JSON can represent."""
        return {
            "current_epoch": self.current_epoch,
            "current_step": self.current_step,
            "is_held": self.is_held,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the counts from `state` without changing the level of the controller.

        Raises:
            StorageError: `state` is not a state of this scheduler.
        """
        check_keys(state, self.state_dict(), f"The state of the {type(self).__name__}")
        check_kinds(state, {"current_epoch": (int,), "current_step": (int,), "is_held": (bool,)})
        self.current_epoch = state["current_epoch"]
        self.current_step = state["current_step"]
        self.is_held = state["is_held"]

    @abc.abstractmethod
    def _on_epoch(self) -> None:
        """Update for a new epoch, after it is counted."""

    def _on_step(self) -> None:  # noqa: B027 (most schedules move by epoch only)
        """Update for a new step, after it is counted."""


class _ScheduleScheduler(Scheduler):
    """Sets the level of a schedule.

    From `freeze_epoch` on, the level stays at the schedule's level for that epoch. It is set only
    if the controller does not have it yet, so masks are frozen.

    Attributes:
        target: The object whose level is set.
        schedule: The level by epoch.
        freeze_epoch: Epoch from which masks are frozen.
    """

    def __init__(self, target: HasLevel, schedule: Schedule, freeze_epoch: int) -> None:
        super().__init__()
        self.target = target
        self.schedule = schedule
        self.freeze_epoch = freeze_epoch

    @property
    def _time(self) -> float:
        """The epoch of the schedule, plus its passed fraction."""
        return self.schedule_epoch

    @property
    @override
    def level(self) -> float:
        if self.current_epoch < 0:
            return asked_of(self.target)
        return self.schedule.level(min(self._time, self.freeze_epoch))

    @property
    @override
    def final_level(self) -> float:
        return self.schedule.level(self.freeze_epoch)

    @override
    def _on_epoch(self) -> None:
        if 0 <= self.schedule_epoch < self.freeze_epoch or asked_of(self.target) != self.level:
            self.target.level = self.level


@final
class EpochScheduler(_ScheduleScheduler):
    """Sets the level of a schedule at the beginning of each epoch."""


@final
class StepScheduler(_ScheduleScheduler):
    """Sets the level of a schedule at the beginning of each epoch and of each optimizer step.

    The n-th step of an epoch, counted from 0, is at the fraction n / steps of it. Without
    `steps_per_epoch` the first epoch keeps the initial level while its steps are counted, and the
    schedule begins with the next epoch.

    Source: NNCF 2.19, `PolynomialSparsityScheduler`, for unknown numbers of steps.

    Attributes:
        steps: The steps within the epoch.
    """

    def __init__(
        self,
        target: HasLevel,
        schedule: Schedule,
        freeze_epoch: int,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__(target, schedule, freeze_epoch)
        self.steps = StepCounter(steps_per_epoch)

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps in an epoch; None until known."""
        return self.steps.steps_per_epoch

    @property
    @override
    def schedule_epoch(self) -> int:
        return max(self.current_epoch - self.steps.counting_epochs, min(self.current_epoch, 0))

    @property
    @override
    def _time(self) -> float:
        return self.schedule_epoch + self.steps.fraction

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | self.steps.state_dict()

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.steps.load_state_dict(state)

    @override
    def _on_epoch(self) -> None:
        self.steps.begin_epoch(is_restarted=self.is_restarted)
        super()._on_epoch()

    @override
    def _on_step(self) -> None:
        self.steps.begin_step()
        super()._on_epoch()


@final
class AdaptiveScheduler(Scheduler):
    """Raises the level by a step whenever the sparsity has been at the level for some epochs.

    Each epoch in which the reached sparsity is at least `level - eps` is counted; after
    `patience` such epochs the level increases by `increment`, at most to `maximum`.

    Attributes:
        target: The object whose level is set.
        reached: Returns the present sparsity.
        maximum: The final level.
        increment: The step of the level.
        patience: Epochs to wait at a level.
        eps: Tolerated distance of the reached sparsity below the level.
        freeze_epoch: Epoch from which the level and the masks are frozen.
    """

    def __init__(  # noqa: PLR0913 (keyword-only, one place calls it)
        self,
        target: HasLevel,
        *,
        reached: Callable[[], float],
        maximum: float,
        increment: float,
        patience: int,
        eps: float,
        freeze_epoch: int,
    ) -> None:
        super().__init__()
        self.target = target
        self.reached = reached
        self.maximum = maximum
        self.increment = increment
        self.patience = patience
        self.eps = eps
        self.freeze_epoch = freeze_epoch
        self._level = asked_of(target)
        self._epochs_at_level = 0

    @property
    @override
    def level(self) -> float:
        return self._level

    @property
    @override
    def final_level(self) -> float:
        return self.maximum

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "epochs_at_level": self._epochs_at_level,
            "level": self._level,
        }

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        check_kinds(state, {"epochs_at_level": (int,), "level": (int, float)})
        self._epochs_at_level = state["epochs_at_level"]
        self._level = state["level"]

    @override
    def _on_epoch(self) -> None:
        if self.current_epoch >= self.freeze_epoch:
            if self.current_epoch == self.freeze_epoch and self._level < self.maximum:
                warnings.warn(
                    f"The adaptive schedule is frozen from now on, at level {self._level:.3g} "
                    f"instead of {self.maximum:.3g}: epoch {self.freeze_epoch} is its "
                    "'sparsity_freeze_epoch'. Give a later one, a larger 'step' or less "
                    "'patience'.",
                    TrainingLoopWarning,
                    stacklevel=3,
                )
            return
        if not self.is_restarted and self.reached() >= self._level - self.eps:
            self._epochs_at_level += 1
        if self._epochs_at_level >= self.patience:
            self._epochs_at_level = 0
            self._level = min(self._level + self.increment, self.maximum)
        self.target.level = self._level


def asked_of(target: HasLevel) -> float:
    """Return the level that `target` was set to last, which it may not have reached."""
    return target.target_level if isinstance(target, HasTargetLevel) else target.level


def _count(name: str, value: int | None, default: int) -> int:
    if value is None:
        return default
    if value < 0:
        raise ArgumentError(
            f"{name} is {value!r}; epochs and steps are counted from 0. Give a whole number that "
            "is at least 0, or nothing for the next one."
        )
    return value

"""Schedules, which give the level as a pure function of the epoch.

Letters: `e` epoch (fractional within an epoch), `T` epochs from the first level to the last.
Source: NNCF 2.19, schedulers of sparsity and pruning.
"""

import bisect
import dataclasses
import math
from collections.abc import Callable
from typing import Protocol, final

from nncfx.errors import ArgumentError
from nncfx.schemes.masks.exact_masks import check_level


class Schedule(Protocol):
    """A level for every epoch."""

    def level(self, epoch: float) -> float:
        """Return the level at `epoch`, counted from 0 and fractional within an epoch."""


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class PolynomialSchedule:
    """From `initial` to `target` along a power of the progress e / T.

    Attributes:
        initial: Level at epoch 0.
        target: Level at epoch T and after.
        epochs: T; 0 means the target from the start.
        power: Exponent, above 0; 1 is a straight line.
        concave: Whether the level rises faster at first, as
            `target - (target - initial) (1 - p)^power`, or faster at the end, as
            `initial + (target - initial) p^power`.
    """

    initial: float
    target: float
    epochs: int
    power: float = 0.9
    concave: bool = True

    def level(self, epoch: float) -> float:
        """Return the level at `epoch`.

        >>> PolynomialSchedule(initial=0.2, target=0.6, epochs=2, power=1).level(1)
        0.4
        """
        progress = _progress(epoch, self.epochs)
        rise = self.target - self.initial
        if self.concave:
            level = self.target - rise * math.pow(1 - progress, self.power)
        else:
            level = self.initial + rise * math.pow(progress, self.power)
        return _exact(level, (self.initial, self.target), progress)


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class ExponentialSchedule:
    """The density 1 - level decreases by the same factor every epoch.

    Attributes:
        initial: Level at epoch 0, below 1.
        target: Level at epoch T and after, below 1.
        epochs: T; 0 means the target from the start.
    """

    initial: float
    target: float
    epochs: int

    def level(self, epoch: float) -> float:
        """Return `1 - (1 - initial) ((1 - target) / (1 - initial))^(e / T)`."""
        progress = _progress(epoch, self.epochs)
        kept = (1 - self.target) / (1 - self.initial)
        density = (1 - self.initial) * math.pow(kept, progress)
        return _exact(1 - density, (self.initial, self.target), progress)


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class MultistepSchedule:
    """A staircase: `levels[i]` from the i-th step on, `levels[0]` before the first.

    Attributes:
        steps: Epochs of the steps, ascending.
        levels: Levels, one more than steps.
    """

    steps: tuple[int, ...]
    levels: tuple[float, ...]

    def level(self, epoch: float) -> float:
        """Return the level at `epoch`; a step takes effect at its own epoch.

        >>> MultistepSchedule(steps=(2,), levels=(0.1, 0.5)).level(2)
        0.5
        """
        return self.levels[bisect.bisect_right(self.steps, epoch)]


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class BaselineSchedule:
    """The target from the first epoch."""

    target: float

    def level(self, epoch: float) -> float:  # noqa: ARG002 (the same at every epoch)
        """Return the target."""
        return self.target


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class FunctionSchedule:
    """A user's function from the epoch to the level.

    A module-level function can be pickled; a lambda cannot.

    Attributes:
        function: Takes the epoch, counted from 0 and fractional within an epoch; returns the
            level, in [0, 1).
    """

    function: Callable[[float], float]

    def level(self, epoch: float) -> float:
        """Return the function's level.

        Raises:
            ArgumentError: the function does not return a level.

        >>> FunctionSchedule(function=lambda epoch: min(0.1 * epoch, 0.5)).level(2)
        0.2
        """
        return check_level(self.function(epoch))


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class BiasedExponentialSchedule:
    """`a exp(-k e) + b`, through three quarters of the target at an eighth of the time.

    The three constants follow from `a + b = initial`, `level(T / 8) = 0.75 target` and
    `level(T) = target`. If the initial level is at least 5/7 of the target, the curve would rise
    slowly at first or not exist, so the level is linear.

    Source: arXiv:1808.07471, as NNCF cites it.

    Attributes:
        initial: Level at epoch 0.
        target: Level at epoch T and after.
        epochs: T; 0 means the target from the start.
    """

    initial: float
    target: float
    epochs: int

    def level(self, epoch: float) -> float:
        """Return the level at `epoch`, at most the target."""
        progress = _progress(epoch, self.epochs)
        rise = self.target - self.initial
        if rise <= 0:
            return self.target
        rate = _decay_rate((0.75 * self.target - self.initial) / rise, at=1 / 8)
        share = progress if rate == 0 else math.expm1(-rate * progress) / math.expm1(-rate)
        return _exact(self.initial + rise * share, (self.initial, self.target), progress)


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmUp:
    """Level 0 for some epochs, then another schedule from its own epoch 0.

    Attributes:
        epochs: Epochs at level 0.
        then: The schedule that follows.
    """

    epochs: int
    then: Schedule

    def level(self, epoch: float) -> float:
        """Return 0 before `epochs`, then the level of the schedule that follows."""
        return self.then.level(epoch - self.epochs) if epoch >= self.epochs else 0.0


def _progress(epoch: float, epochs: int) -> float:
    """Return `epoch / epochs` clipped to [0, 1]; 1 if `epochs` is 0."""
    if epochs < 0:
        raise ArgumentError(
            f"A schedule over {epochs} epochs has no end; the count must be at least 0."
        )
    return min(max(epoch / epochs, 0.0), 1.0) if epochs else 1.0


def _exact(level: float, ends: tuple[float, float], progress: float) -> float:
    """Return `level`, but exactly the first or last of `ends` at progress 0 or 1.

    A level that is rounded down by one unit in the last place could zero one weight less.
    """
    return ends[int(progress)] if progress in {0, 1} else min(level, ends[1])


def _decay_rate(share: float, at: float) -> float:
    """Return k > 0 with `(1 - exp(-k at)) / (1 - exp(-k)) = share`, or 0 if `share <= at`.

    The left side increases with k from `at` to 1, so bisection finds the only root.
    """
    if share <= at:
        return 0.0
    low, high = 0.0, 1.0
    while _risen(high, at) < share:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        if _risen(middle, at) < share:
            low = middle
        else:
            high = middle
    return middle


def _risen(rate: float, at: float) -> float:
    return math.expm1(-rate * at) / math.expm1(-rate)

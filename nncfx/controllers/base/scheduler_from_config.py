"""Create schedulers from the parameters of a config."""

import logging
import math
from collections.abc import Callable
from typing import Final

from nncfx.config import SparsityParams
from nncfx.controllers.base.schedulers import (
    AdaptiveScheduler,
    EpochScheduler,
    HasLevel,
    Scheduler,
    StepScheduler,
    asked_of,
)
from nncfx.controllers.base.schedules import (
    BaselineSchedule,
    ExponentialSchedule,
    MultistepSchedule,
    PolynomialSchedule,
    Schedule,
)

_LOGGER: Final = logging.getLogger(__name__)


def sparsity_scheduler(
    target: HasLevel, params: SparsityParams, reached: Callable[[], float]
) -> Scheduler:
    """Return a scheduler for `target` with the schedule of `params`, from the present level.

    Args:
        target: The object whose level is set; its present level is the initial level.
        params: The schedule and its numbers.
        reached: Returns the present sparsity, for an adaptive schedule.
    """
    if unread := params.unread():
        _LOGGER.warning(
            "The schedule is '%s', which does not read %s. Remove what was meant for another.",
            params.schedule,
            " and ".join(f"'{one}'" for one in unread),
        )
    if params.schedule == "adaptive":
        return AdaptiveScheduler(
            target,
            reached=reached,
            maximum=params.sparsity_target,
            increment=params.step,
            patience=params.patience,
            eps=params.eps,
            freeze_epoch=params.freeze_epoch,
        )
    schedule = sparsity_schedule(asked_of(target), params)
    freeze = params.freeze_epoch
    held, last = schedule.level(freeze), schedule.level(math.inf)
    if held < last:
        _LOGGER.warning(
            "The masks are frozen from 'sparsity_freeze_epoch' %d on, at the level %.3g instead "
            "of %.3g, which the schedule would reach later. Freeze later, or let it end sooner.",
            freeze,
            held,
            last,
        )
    if params.update_per_optimizer_step:
        return StepScheduler(target, schedule, freeze, params.steps_per_epoch)
    return EpochScheduler(target, schedule, freeze)


def sparsity_schedule(initial: float, params: SparsityParams) -> Schedule:
    """Return the level by epoch, starting at `initial`, for every schedule except adaptive."""
    goal, epochs = params.sparsity_target, params.sparsity_target_epoch
    if params.schedule == "multistep":
        levels = params.multistep_sparsity_levels
        return MultistepSchedule(steps=params.multistep_steps, levels=levels)
    if params.schedule == "constant":
        return BaselineSchedule(target=goal)
    if params.schedule == "exponential":
        return ExponentialSchedule(initial=initial, target=goal, epochs=epochs)
    is_cubic = params.schedule == "cubic"
    return PolynomialSchedule(
        initial=initial,
        target=goal,
        epochs=epochs,
        power=3 if is_cubic else params.power,
        concave=is_cubic or params.concave,
    )

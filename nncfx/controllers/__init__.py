"""Builders and controllers, and what they share: schedules, masks, losses, statistics."""

from nncfx.controllers.builder import (
    Builder,
    builder_for,
    register_algorithm,
    registered_algorithms,
    unregister_algorithm,
)
from nncfx.controllers.controller import CompositeController, Controller
from nncfx.controllers.losses import CompressionLoss, ZeroLoss
from nncfx.controllers.masking import MaskHook, MaskSet
from nncfx.controllers.schedulers import (
    AdaptiveScheduler,
    CompositeScheduler,
    EpochScheduler,
    HasLevel,
    Scheduler,
    StepScheduler,
)
from nncfx.controllers.schedules import (
    BaselineSchedule,
    BiasedExponentialSchedule,
    ExponentialSchedule,
    MultistepSchedule,
    PolynomialSchedule,
    Schedule,
    WarmUp,
)
from nncfx.controllers.scheduling import sparsity_schedule, sparsity_scheduler
from nncfx.controllers.statistics import CompositeStatistics, Statistics, table

__all__ = [
    "AdaptiveScheduler",
    "BaselineSchedule",
    "BiasedExponentialSchedule",
    "Builder",
    "CompositeController",
    "CompositeScheduler",
    "CompositeStatistics",
    "CompressionLoss",
    "Controller",
    "EpochScheduler",
    "ExponentialSchedule",
    "HasLevel",
    "MaskHook",
    "MaskSet",
    "MultistepSchedule",
    "PolynomialSchedule",
    "Schedule",
    "Scheduler",
    "Statistics",
    "StepScheduler",
    "WarmUp",
    "ZeroLoss",
    "builder_for",
    "register_algorithm",
    "registered_algorithms",
    "sparsity_schedule",
    "sparsity_scheduler",
    "table",
    "unregister_algorithm",
]

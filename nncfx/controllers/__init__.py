"""Builders and controllers, with their schedules, masks, losses and statistics."""

from nncfx.controllers.base.builder import (
    Builder,
    builder_for,
    register_algorithm,
    registered_algorithms,
    unregister_algorithm,
)
from nncfx.controllers.base.composite_scheduler import CompositeScheduler
from nncfx.controllers.base.controller import Controller
from nncfx.controllers.base.loop_watch import LoopWatch, TrainingLoopWarning
from nncfx.controllers.base.losses import CompressionLoss, ZeroLoss
from nncfx.controllers.base.scheduler_from_config import sparsity_schedule, sparsity_scheduler
from nncfx.controllers.base.schedulers import (
    AdaptiveScheduler,
    EpochScheduler,
    HasLevel,
    Scheduler,
    StepCounter,
    StepScheduler,
)
from nncfx.controllers.base.schedules import (
    BaselineSchedule,
    BiasedExponentialSchedule,
    ExponentialSchedule,
    FunctionSchedule,
    MultistepSchedule,
    PolynomialSchedule,
    Schedule,
    WarmUp,
)
from nncfx.controllers.base.stage import CompressionStage
from nncfx.controllers.base.statistics import CompositeStatistics, Statistics, table
from nncfx.controllers.composite_controller import CompositeController
from nncfx.controllers.loops.accuracy_aware import (
    AccuracyAwareEpoch,
    AccuracyAwareResult,
    TrainingTask,
    train_to_accuracy,
)
from nncfx.controllers.loops.batch_norm_adaptation import adapt_batch_norms
from nncfx.controllers.loops.weight_averaging import keep_hooks
from nncfx.controllers.masks.masking import MaskHook, MaskSet
from nncfx.controllers.masks.weight_sparsity import (
    LayerSparsity,
    SparsityStatistics,
    plan_on_weights,
    sparsity_statistics,
    weights_in_scope,
)

__all__ = [
    "AccuracyAwareEpoch",
    "AccuracyAwareResult",
    "AdaptiveScheduler",
    "BaselineSchedule",
    "BiasedExponentialSchedule",
    "Builder",
    "CompositeController",
    "CompositeScheduler",
    "CompositeStatistics",
    "CompressionLoss",
    "CompressionStage",
    "Controller",
    "EpochScheduler",
    "ExponentialSchedule",
    "FunctionSchedule",
    "HasLevel",
    "LayerSparsity",
    "LoopWatch",
    "MaskHook",
    "MaskSet",
    "MultistepSchedule",
    "PolynomialSchedule",
    "Schedule",
    "Scheduler",
    "SparsityStatistics",
    "Statistics",
    "StepCounter",
    "StepScheduler",
    "TrainingLoopWarning",
    "TrainingTask",
    "WarmUp",
    "ZeroLoss",
    "adapt_batch_norms",
    "builder_for",
    "keep_hooks",
    "plan_on_weights",
    "register_algorithm",
    "registered_algorithms",
    "sparsity_schedule",
    "sparsity_scheduler",
    "sparsity_statistics",
    "table",
    "train_to_accuracy",
    "unregister_algorithm",
    "weights_in_scope",
]

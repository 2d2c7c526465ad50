"""Recovery of accuracy: L-C, direct compression and fine-tuning with a common interface."""

from typing import TYPE_CHECKING

from nncfx.lazy import names_of

if TYPE_CHECKING:
    from nncfx.lc.admm import ADMM
    from nncfx.lc.builder import LCBuilder
    from nncfx.lc.config import LCConfig, LCParams
    from nncfx.lc.controller import LCController
    from nncfx.lc.direct import DC, DCFineTuned
    from nncfx.lc.lc import LC
    from nncfx.lc.nesterov import Nesterov, OptimizerFactory
    from nncfx.lc.recovery import Recovered, Recovery, RecoveryData, StepRecord
    from nncfx.lc.training_settings import TrainingSettings

__all__ = [
    "ADMM",
    "DC",
    "LC",
    "DCFineTuned",
    "LCBuilder",
    "LCConfig",
    "LCController",
    "LCParams",
    "Nesterov",
    "OptimizerFactory",
    "Recovered",
    "Recovery",
    "RecoveryData",
    "StepRecord",
    "TrainingSettings",
]

__getattr__ = names_of(
    __name__,
    "config",
    "admm",
    "builder",
    "controller",
    "direct",
    "lc",
    "nesterov",
    "recovery",
    "training_settings",
)

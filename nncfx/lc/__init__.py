"""Recovery of accuracy: L-C, direct compression, and fine-tuning behind one interface."""

from nncfx.lc.admm import ADMM
from nncfx.lc.controller import LCBuilder, LCController
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
    "LCController",
    "Nesterov",
    "OptimizerFactory",
    "Recovered",
    "Recovery",
    "RecoveryData",
    "StepRecord",
    "TrainingSettings",
]

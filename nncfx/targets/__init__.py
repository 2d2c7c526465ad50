"""Deployment targets: what they compute and what files they need. Plain data, without torch."""

from nncfx.operators import KINDS
from nncfx.targets.alignment import Alignment
from nncfx.targets.hardware import DTYPES, Descriptor, Hardware
from nncfx.targets.known import TARGETS
from nncfx.targets.lookup import hardware_named, names, target_named, target_of_device, target_with
from nncfx.targets.selection_cost import SelectionCost
from nncfx.targets.target import TARGET_KEY, Target
from nncfx.targets.workarounds import WORKAROUNDS, Workaround

__all__ = [
    "DTYPES",
    "KINDS",
    "TARGETS",
    "TARGET_KEY",
    "WORKAROUNDS",
    "Alignment",
    "Descriptor",
    "Hardware",
    "SelectionCost",
    "Target",
    "Workaround",
    "hardware_named",
    "names",
    "target_named",
    "target_of_device",
    "target_with",
]

"""What deployment targets compute and what they want of a file: data, without torch."""

from nncfx.operators import KINDS
from nncfx.targets.descriptions import HARDWARE, hardware_named
from nncfx.targets.hardware import DTYPES, SCHEMA, Descriptor, Hardware
from nncfx.targets.targets import TARGETS, Target

__all__ = [
    "DTYPES",
    "HARDWARE",
    "KINDS",
    "SCHEMA",
    "TARGETS",
    "Descriptor",
    "Hardware",
    "Target",
    "hardware_named",
]

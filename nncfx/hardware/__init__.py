"""Descriptions of what a target computes in integers: data and JSON, without torch."""

from nncfx.hardware.hardware import DTYPES, SCHEMA, Descriptor, Hardware
from nncfx.hardware.operation_kinds import CONTRACTIONS, KINDS, MOVEMENTS, operation_kind
from nncfx.hardware.targets import HARDWARE, hardware_named

__all__ = [
    "CONTRACTIONS",
    "DTYPES",
    "HARDWARE",
    "KINDS",
    "MOVEMENTS",
    "SCHEMA",
    "Descriptor",
    "Hardware",
    "hardware_named",
    "operation_kind",
]

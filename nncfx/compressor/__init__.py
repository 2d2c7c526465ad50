"""The whole run: search the level, recover accuracy, thin, export, time, and keep the evidence."""

from nncfx.compressor.evidence import (
    Curve,
    Evidence,
    LayerRow,
    ModelFacts,
    Sample,
    StudyEvidence,
)
from nncfx.compressor.machine import machine_facts, version_facts

__all__ = [
    "Curve",
    "Evidence",
    "LayerRow",
    "ModelFacts",
    "Sample",
    "StudyEvidence",
    "machine_facts",
    "version_facts",
]

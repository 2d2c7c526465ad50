"""What a compression run claims and what it rests on, as plain data."""

from nncfx.evidence.evidence import (
    Curve,
    Evidence,
    LayerRow,
    ModelFacts,
    Sample,
    StudyEvidence,
)
from nncfx.evidence.machine import machine_facts, version_facts

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

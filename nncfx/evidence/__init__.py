"""The claims and the evidence of a compression run, as plain data."""

from nncfx.evidence.evidence import Curve, Evidence, LayerRow, ModelFacts, Sample, StudyEvidence
from nncfx.evidence.exported import ExportedFile
from nncfx.evidence.machine import machine_facts, version_facts
from nncfx.evidence.network_facts import OperationFacts, WeightFacts

__all__ = [
    "Curve",
    "Evidence",
    "ExportedFile",
    "LayerRow",
    "ModelFacts",
    "OperationFacts",
    "Sample",
    "StudyEvidence",
    "WeightFacts",
    "machine_facts",
    "version_facts",
]

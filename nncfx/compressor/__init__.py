"""The whole run: search the level, recover accuracy, thin, export, time, and keep evidence."""

from nncfx.compressor.compressor import Compressor
from nncfx.compressor.evaluation.metrics import Metric, accuracy
from nncfx.compressor.latency_budget import groups_within_latency, measured_widths
from nncfx.compressor.result import CompressionResult
from nncfx.compressor.settings import CompressorSettings
from nncfx.evidence.evidence import Curve, Evidence, LayerRow, ModelFacts, Sample, StudyEvidence
from nncfx.evidence.machine import machine_facts, version_facts
from nncfx.training.create import create_compressed_model
from nncfx.training.model_checkpoint import load, save

__all__ = [
    "CompressionResult",
    "Compressor",
    "CompressorSettings",
    "Curve",
    "Evidence",
    "LayerRow",
    "Metric",
    "ModelFacts",
    "Sample",
    "StudyEvidence",
    "accuracy",
    "create_compressed_model",
    "groups_within_latency",
    "load",
    "machine_facts",
    "measured_widths",
    "save",
    "version_facts",
]

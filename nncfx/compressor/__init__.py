"""The whole run: search the level, recover accuracy, thin, export, time, and keep the evidence."""

from nncfx.compressor.checkpoint import load, save
from nncfx.compressor.compressor import Compressor
from nncfx.compressor.create import create_compressed_model
from nncfx.compressor.evidence import (
    Curve,
    Evidence,
    LayerRow,
    ModelFacts,
    Sample,
    StudyEvidence,
)
from nncfx.compressor.latency_budget import groups_within_latency, measured_widths
from nncfx.compressor.machine import machine_facts, version_facts
from nncfx.compressor.metrics import Metric, accuracy
from nncfx.compressor.result import CompressionResult
from nncfx.compressor.settings import CompressorSettings

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

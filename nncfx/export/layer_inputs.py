"""How ONNX lays out the inputs of layers with weights."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["BIAS", "OUTPUT_AXIS"]

BIAS: Final = 2
"""The input that is the bias; it may be left out."""

OUTPUT_AXIS: Final[Mapping[str, int]] = MappingProxyType(
    {"Conv": 0, "ConvTranspose": 1, "Gemm": 0},
)
"""For each operator with a bias, the axis of the output channels in its weight.

A `Gemm` is meant as the exporter writes linear layers, with `transB`.
"""

"""How ONNX lays out the inputs of layers with weights, and what quantized ones read."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy.typing as npt

from nncfx.export.ir.graph_edits import constant_of

if TYPE_CHECKING:
    import onnx_ir as ir

CONTRACTIONS: Final = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""The operators that multiply and sum up; their first two inputs are what they multiply."""

BIAS: Final = 2
"""The input that is the bias; it may be left out."""

OUTPUT_AXIS: Final[Mapping[str, int]] = MappingProxyType(
    {"Conv": 0, "ConvTranspose": 1, "Gemm": 0}
)
"""For each operator with a bias, the axis of the output channels in its weight.

A `Gemm` is meant as the exporter writes linear layers, with `transB`.
"""


def is_dequantized(value: "ir.Value") -> bool:
    """Return whether `value` stands for integers, stored or computed."""
    source = value.producer()
    return source is not None and source.op_type == "DequantizeLinear"


def stored_integers(value: "ir.Value") -> npt.NDArray[Any] | None:
    """Return the integers in the file for which `value` stands; None if there are none."""
    source = value.producer()
    if source is None or not is_dequantized(value):
        return None
    return constant_of(source.inputs[0])

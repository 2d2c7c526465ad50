"""Layout of the inputs of layers with weights in ONNX, quantized or not."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy.typing as npt

from nncfx.export.ir.graph_edits import constant_of

if TYPE_CHECKING:
    import onnx_ir as ir

CONTRACTIONS: Final = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""The operators that multiply and sum; their first two inputs are the factors."""

BIAS: Final = 2
"""The index of the bias input, which is optional."""

OUTPUT_AXIS: Final[Mapping[str, int]] = MappingProxyType(
    {"Conv": 0, "ConvTranspose": 1, "Gemm": 0}
)
"""For each operator with a bias, the axis of the output channels in its weight.

For `Gemm`, this assumes `transB`, as the exporter writes linear layers.
"""


def is_dequantized(value: "ir.Value") -> bool:
    """Return whether `value` is dequantized from integers, stored or computed."""
    source = value.producer()
    return source is not None and source.op_type == "DequantizeLinear"


def stored_integers(value: "ir.Value") -> npt.NDArray[Any] | None:
    """Return the stored integers from which `value` is dequantized; None if there are none."""
    source = value.producer()
    if source is None or not is_dequantized(value):
        return None
    return constant_of(source.inputs[0])

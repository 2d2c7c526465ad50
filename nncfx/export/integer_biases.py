"""Store the biases of integer layers as int32."""

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.graph_edits import add_constant, constant_of, input_of
from nncfx.export.layer_inputs import BIAS, OUTPUT_AXIS

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["add_integer_biases"]

_INT32_MAX: Final = 2**31 - 1


def add_integer_biases(graph: "ir.Graph") -> None:
    """Store the bias of each layer that computes in integers as int32.

    Its scale is that of the products: scale of the input times scale of the weight. Where a bias
    is too large for that, the layer keeps it in float.
    """
    import onnx_ir as ir

    for layer in list(graph):
        if layer.op_type not in OUTPUT_AXIS or layer.domain or len(layer.inputs) <= BIAS:
            continue
        bias = constant_of(layer.inputs[BIAS])
        scale = _product_scale(layer)
        if bias is None or scale is None or bias.ndim != 1:
            continue
        scale = np.broadcast_to(scale, bias.shape) if scale.size > 1 else scale.reshape(())
        integers = np.rint(bias.astype(np.float64) / scale)
        if np.abs(integers).max(initial=0) > _INT32_MAX:
            continue
        value = input_of(layer, BIAS)
        name = value.name
        zero = np.zeros(scale.shape, np.int32)
        node = ir.node(
            "DequantizeLinear",
            [
                add_constant(graph, f"{name}_integers", integers.astype(np.int32)),
                add_constant(graph, f"{name}_scale", scale.astype(np.float32)),
                add_constant(graph, f"{name}_zero_point", zero),
            ],
            {"axis": 0} if scale.ndim else {},
            metadata_props=dict(layer.metadata_props),
        )
        node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
        graph.insert_before(layer, node)
        layer.replace_input_with(BIAS, node.outputs[0])


def _product_scale(layer: "ir.Node") -> npt.NDArray[Any] | None:
    scales = []
    for value in layer.inputs[:2]:
        source = None if value is None else value.producer()
        if source is None or source.op_type != "DequantizeLinear":
            return None
        scale = constant_of(source.inputs[1])
        if scale is None:
            return None
        scales.append(scale.astype(np.float64))
    return scales[0] * scales[1] if scales[0].size == 1 else None

"""Write the biases of integer layers as int32 or as separate sums."""

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.graph_edits import (
    add_constant,
    constant_of,
    input_of,
    new_node,
    node_like,
    nodes_of,
    put_before,
    replace_node,
    shared_constant,
)
from nncfx.export.ir.layer_inputs import BIAS, OUTPUT_AXIS

if TYPE_CHECKING:
    import onnx_ir as ir

_CONVOLUTIONS: Final = frozenset({"Conv", "ConvTranspose"})
_LARGEST: Final = 2**30
"""The largest integer bias, half of the 32-bit range; the other half is for the products."""
_COMPUTED: Final = 8
"""The number of scales from which a node that multiplies them takes fewer bytes."""


def add_integer_biases(graph: "ir.Graph") -> None:
    """Store the bias of each layer that computes in integers as int32.

    Its scale is that of the products: scale of the input times scale of the weight. If a bias
    would need more than 30 bits (in a channel that is pruned, or nearly switched off by a batch
    norm), the weight's scale grows until the bias fits; the rounding error is less than 1e-7 of
    the bias for each weight. In ONNX Runtime such a bias would overflow.
    """
    for layer in nodes_of(graph, *OUTPUT_AXIS):
        if len(layer.inputs) <= BIAS:
            continue
        bias = constant_of(layer.inputs[BIAS])
        if bias is None or bias.ndim != 1 or _product_scale(layer) is None:
            continue
        _make_room(layer, bias.astype(np.float64), graph)
        scale = _product_scale(layer)
        if scale is None:
            continue
        # the groups of a transposed convolution share their scales
        scale = np.tile(scale, bias.size // scale.size) if scale.size > 1 else scale.reshape(())
        if (np.abs(bias) >= scale * 2 * _LARGEST).any():
            continue
        value = input_of(layer, BIAS)
        name = value.name
        integers = np.rint(bias.astype(np.float64) / scale)
        inputs = [
            add_constant(graph, f"{name}_integers", integers.astype(np.int32)),
            _scale_in_file(layer, scale, f"{name}_scale", graph),
        ]
        along = {"axis": 0} if scale.ndim else {}
        node = new_node("DequantizeLinear", inputs, layer, along, like=value)
        put_before(layer, BIAS, node, graph)


def separate_biases(graph: "ir.Graph") -> None:
    """Write the biases of convolutions with open shapes, such as an open batch, as separate sums.

    OpenVINO turns a bias into a sum with a constant that it reshapes by the shape of the product.
    It also takes the number of examples from this shape if the model reads it; and if a product is
    read twice, it wrongly moves the bias into the next quantizer. A sum with a constant of the
    right shape is as fast.
    """
    if not nodes_of(graph, "QuantizeLinear"):
        return
    for layer in nodes_of(graph, *_CONVOLUTIONS):
        shape = layer.outputs[0].shape
        if len(layer.inputs) <= BIAS:
            continue
        bias = constant_of(layer.inputs[BIAS])
        if bias is None or shape is None or all(isinstance(size, int) for size in shape):
            continue
        product = node_like(layer, layer.inputs[:BIAS])
        product.name = layer.name
        name = f"{input_of(layer, BIAS).name}_column"
        column = shared_constant(graph, name, bias.reshape(-1, *[1] * (shape.rank() - 2)))
        graph.insert_before(layer, product)
        replace_node(layer, new_node("Add", [product.outputs[0], column], layer), graph)


def _scale_in_file(
    layer: "ir.Node", scale: npt.NDArray[np.float64], name: str, graph: "ir.Graph"
) -> "ir.Value":
    """Return `scale` as a constant or, if that is shorter, as the product of two in the file.

    The product of two float32 numbers is exact in float64, so it is rounded once either way.
    """
    product = _product_scale(layer)
    if scale.size < _COMPUTED or product is None or product.size < scale.size:
        return add_constant(graph, name, scale.astype(np.float32))
    factors = [
        input_of(source, 1)
        for index in range(2)
        if (source := input_of(layer, index).producer()) is not None
    ]
    node = new_node("Mul", factors, layer, like=factors[1])
    graph.insert_before(layer, node)
    return node.outputs[0]


def _make_room(layer: "ir.Node", bias: npt.NDArray[np.float64], graph: "ir.Graph") -> None:
    """Enlarge the scale of the weight of `layer` so that `bias` fits."""
    read, stored = (input_of(layer, index).producer() for index in range(2))
    if read is None or stored is None:
        return
    integers, scale, zero_point = (constant_of(value) for value in stored.inputs)
    step = constant_of(read.inputs[1])
    if integers is None or scale is None or zero_point is None or step is None:
        return
    least = np.abs(bias) / (step.astype(np.float64) * _LARGEST)
    least = least.reshape(-1, scale.size).max(axis=0)
    if (least <= scale).all():
        return
    wider = np.maximum(scale, least.reshape(scale.shape)).astype(np.float32)
    along = np.ones(integers.ndim, np.int64)
    along[OUTPUT_AXIS[layer.op_type]] = wider.size
    shrunk, zero = (one.astype(np.float64).reshape(along) for one in (scale / wider, zero_point))
    rounded = np.rint((integers - zero) * shrunk + zero).astype(integers.dtype)
    name = input_of(stored).name
    stored.replace_input_with(0, add_constant(graph, f"{name}_rounded", rounded))
    stored.replace_input_with(1, add_constant(graph, f"{name}_scale", wider))


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

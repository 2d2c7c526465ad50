"""Keep runtimes from changing float operations next to integer operations."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from nncfx.export.ir.graph_edits import (
    add_constant,
    constant_of,
    consumers,
    input_of,
    insert_after_value,
    new_node,
    nodes_of,
    put_before,
    shared_constant,
)
from nncfx.export.ir.grid_propagation import is_movement
from nncfx.export.ir.layer_inputs import BIAS, OUTPUT_AXIS, is_dequantized, stored_integers
from nncfx.export.passes.constant_folding import constant_nodes
from nncfx.export.passes.gemm_fusion_guards import (
    prevent_bias_fusion,
    prevent_clamp_fusion,
    prevent_quantizer_fusion,
    prevent_result_fusion,
)

if TYPE_CHECKING:
    import onnx_ir as ir

_CHANNELS: Final = 1
"""Axis of the channels in the input of a convolution or a `Gemm`."""
_PASSED: Final = frozenset({"QuantizeLinear", "DequantizeLinear", "Relu", "Clip"})
"""Operators past which OpenVINO moves a quantizer, in addition to movements."""
_EXTREMES: Final = frozenset({"ReduceMax", "ReduceMin", "GlobalMaxPool"})


def add_fusion_barriers(graph: "ir.Graph") -> None:
    """Rewrite float operations next to integers so that ONNX Runtime does not change them.

    Between quantized tensors it rounds the float weights of a layer; computes a softmax by a table
    that overflows; fuses ReLUs, biases and quantizers of some readers into products, which it then
    computes in float; and moves channels to an axis where it cannot resize. Each of these fusions
    needs a certain pattern of operators, which this pass breaks without changing values.

    Args:
        graph: Its quantizers are already pairs of `QuantizeLinear` and `DequantizeLinear`.
    """
    _keep_float_weights(graph)
    prevent_clamp_fusion(graph)
    prevent_result_fusion(graph)
    _prevent_softmax_tables(graph)
    prevent_bias_fusion(graph)
    _keep_axes_of_cubic_resizes(graph)


def add_quantizer_barriers(graph: "ir.Graph") -> None:
    """Insert a maximum with -inf where OpenVINO would fuse or move quantizers wrongly.

    OpenVINO does not look past a maximum of two tensors, and computes it with the quantizer.
    Without this barrier:

    * It moves a quantizer before a concatenation, with a zero point for each part along that axis.
      Unless these are 0, they do not fit the product of a layer that reads tokens, or channels
      that a `DepthToSpace` turns into pixels.
    * It fuses a quantizer into a maximum or minimum of floats, which it then computes wrongly.
    * It pads channels with bytes that represent zeros only if the zero point is 0.
    * It fuses consecutive matrix products without biases into a kernel that reads uninitialized
      memory, as does the kernel of a product, a softmax and a product by a weight that it decodes.
    * It cannot compute a `Gemm` of constants with such a weight.

    Args:
        graph: Its quantizers are already pairs of `QuantizeLinear` and `DequantizeLinear`.
    """
    known = constant_nodes(graph)
    for node in [one for one in graph if not one.domain]:
        if _pads_channels(node):
            put_before(node, 0, maximum_with_least(input_of(node), node, graph), graph)
        if _decodes_weight(node) or (node in known and _multiplies_integers(node, "Gemm")):
            put_before(node, 1, maximum_with_least(input_of(node, 1), node, graph), graph)
        if _needs_barrier(node):
            value = node.outputs[0]
            readers = list(value.uses())
            behind = maximum_with_least(value, node, graph)
            insert_after_value(value, behind, graph)
            for reader, index in readers:
                reader.replace_input_with(index, behind.outputs[0])


def _pads_channels(node: "ir.Node") -> bool:
    """Return whether `node` pads the channels of integers with constants."""
    if node.op_type != "Pad" or not is_dequantized(input_of(node)):
        return False
    pads = constant_of(node.inputs[1])
    is_constant = node.attributes.get_string("mode", "constant") == "constant"
    return (
        is_constant and pads is not None and bool((pads.reshape(2, -1)[:, _CHANNELS:2] > 0).any())
    )


def _decodes_weight(node: "ir.Node") -> bool:
    """Return whether `node` multiplies by stored integers in float, as attention to a memory."""
    if node.op_type != "MatMul":
        return False
    integers = stored_integers(input_of(node, 1))
    decoder, factor = input_of(node, 1).producer(), input_of(node).producer()
    if integers is None or decoder is None or "block_size" in decoder.attributes:
        return False
    # scales along the summed axis cannot be applied to the sums
    is_scaled_before = decoder.attributes.get_int("axis", -1) == integers.ndim - 2
    return is_scaled_before or (factor is not None and factor.op_type == "Softmax")


def _needs_barrier(node: "ir.Node") -> bool:
    import onnx_ir as ir

    if node.op_type == "Concat":
        return _is_refused(node)
    if node.op_type in ("Gemm", "MatMul"):
        return _is_flat_product(node)
    return node.op_type in _EXTREMES and node.outputs[0].dtype == ir.DataType.FLOAT


def _is_flat_product(node: "ir.Node") -> bool:
    """Return whether `node` multiplies a matrix by stored integers without adding a bias."""
    shape = node.outputs[0].shape
    is_flat = shape is not None and shape.rank() == 2  # noqa: PLR2004 (a matrix)
    has_bias = len(node.inputs) > BIAS
    return is_flat and not has_bias and stored_integers(input_of(node, 1)) is not None


def _is_refused(concatenation: "ir.Node") -> bool:
    joined = concatenation.outputs[0]
    rank = joined.shape.rank() if joined.shape is not None else 0
    axis = concatenation.attributes["axis"].as_int()
    is_last, is_channels = axis in (-1, rank - 1), axis in (_CHANNELS, _CHANNELS - rank)
    return (not is_last and _reaches(joined, _multiplies_integers)) or (
        is_channels and _reaches(joined, _quantizes_shuffled)
    )


def maximum_with_least(value: "ir.Value", like: "ir.Node", graph: "ir.Graph") -> "ir.Node":
    """Return a maximum of `value` and -inf, which equals `value`; it is not in the graph yet.

    OpenVINO moves neither quantizers nor scales past it.
    """
    least = shared_constant(graph, "negative_infinity", np.array(-np.inf, np.float32))
    return new_node("Max", [value, least], like, like=value)


def _reaches(value: "ir.Value", wanted: "Callable[[ir.Node], bool]") -> bool:
    """Return whether a `wanted` node reads `value`, possibly moved, rounded or clamped."""
    for node in consumers(value):
        passes = node.op_type in _PASSED or is_movement(node)
        if wanted(node) or (passes and any(_reaches(one, wanted) for one in node.outputs)):
            return True
    return False


def _multiplies_integers(node: "ir.Node", operator: str = "MatMul") -> bool:
    return node.op_type == operator and stored_integers(input_of(node, 1)) is not None


def _quantizes_shuffled(node: "ir.Node") -> bool:
    """Return whether `node` quantizes a tensor that a `DepthToSpace` turns into pixels."""
    return node.op_type == "QuantizeLinear" and _reaches(
        node.outputs[0], lambda one: one.op_type == "DepthToSpace"
    )


def _keep_float_weights(graph: "ir.Graph") -> None:
    """Dequantize the inputs of layers with float weights by one scale per channel.

    ONNX Runtime (`WeightBiasQuantization`, from 1.21 on) rounds float weights to 8 bits per tensor
    if the layer reads integers with a single scale and its result is quantized, so a layer
    excluded from quantization on purpose would still be quantized, more coarsely than any other.
    It skips inputs with several scales, along any axis; here all scales are equal, so no value
    changes.
    """
    for layer in nodes_of(graph, *OUTPUT_AXIS):
        floats = input_of(layer)
        read = floats.producer()
        if read is None or not is_dequantized(floats) or is_dequantized(input_of(layer, 1)):
            continue
        sizes = [] if floats.shape is None else list(floats.shape)
        counts = {n: size for n, size in enumerate(sizes) if isinstance(size, int) and size > 1}
        grid = [constant_of(value) for value in read.inputs[1:]]
        if any(one is None or one.size != 1 for one in grid):
            continue
        if not counts:
            prevent_quantizer_fusion(layer, graph)
            continue
        axis = _CHANNELS if _CHANNELS in counts else max(counts)
        along = [
            add_constant(graph, f"{layer.name}_{name}", np.full(counts[axis], one))
            for name, one in zip(("scale", "zero_point"), grid, strict=False)
        ]
        inputs = [input_of(read), *along]
        behind = new_node("DequantizeLinear", inputs, layer, {"axis": axis}, like=floats)
        put_before(layer, 0, behind, graph)


def _prevent_softmax_tables(graph: "ir.Graph") -> None:
    """Keep softmaxes between quantized tensors in float.

    ONNX Runtime computes such a softmax by a table of exponentials. If none of n outputs exceeds
    1.7 / n, its floats overflow, and the largest outputs are 0 (`QLinearSoftmax`: a sum kept below
    the largest float / e**5 is divided by the output's scale first). In float it takes half the
    time (`benchmarks/softmax_kernels.py`).
    """
    for softmax in nodes_of(graph, "Softmax"):
        if is_dequantized(input_of(softmax)):
            prevent_quantizer_fusion(softmax, graph)


def _keep_axes_of_cubic_resizes(graph: "ir.Graph") -> None:
    """Insert a `DepthToSpace` with blocks of one pixel before cubic resizes to fewer pixels.

    ONNX Runtime computes integer convolutions with channels last and moves the transpositions past
    a resize, for which it then has no kernel, so it refuses the file. It does not move them past a
    `DepthToSpace`, nor does it remove this node, as it would a reshaping.
    """
    for resize in nodes_of(graph, "Resize"):
        is_cubic = resize.attributes.get_string("mode") == "cubic"
        if not is_cubic or resize.attributes.get_int("antialias"):
            continue
        scales = constant_of(resize.inputs[2])
        if scales is not None and scales.size and scales.min() >= 1:
            continue
        image = input_of(resize)
        same = new_node("DepthToSpace", [image], resize, {"blocksize": 1}, like=image)
        put_before(resize, 0, same, graph)

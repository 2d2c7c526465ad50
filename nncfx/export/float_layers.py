"""Keep ONNX Runtime from mixing up floats and integers where the two meet."""

from typing import TYPE_CHECKING, Final

import numpy as np

from nncfx.export.graph_edits import (
    add_constant,
    constant_of,
    consumers,
    input_of,
    insert_after_value,
    replace_node,
    shared_constant,
    sole_consumer,
)
from nncfx.export.layer_inputs import OUTPUT_AXIS, is_dequantized

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["keep_float_layers", "part_clamps", "part_softmaxes"]

_CHANNELS: Final = 1
"""Axis of the channels in what a convolution or a `Gemm` reads."""
_CLAMPS: Final = frozenset({"Clip", "Relu"})


def keep_float_layers(graph: "ir.Graph") -> None:
    """Let layers with float weights read integers with one scale for each channel.

    ONNX Runtime (`WeightBiasQuantization`, from 1.21 on) rounds float weights to 8 bits per tensor
    where the layer reads integers of one scale and its result is quantized: a layer that was left
    out of quantization on purpose would be quantized all the same, more coarsely than any other.
    It leaves alone what has a scale for each channel; here these are all the same, and every value
    read is what it was.
    """
    import onnx_ir as ir

    for layer in list(graph):
        if layer.op_type not in OUTPUT_AXIS or layer.domain:
            continue
        floats = input_of(layer)
        read = floats.producer()
        if read is None or not is_dequantized(floats) or is_dequantized(input_of(layer, 1)):
            continue
        count = None if floats.shape is None else floats.shape[_CHANNELS]
        grid = [constant_of(value) for value in read.inputs[1:]]
        if not isinstance(count, int) or any(one is None or one.size != 1 for one in grid):
            continue
        node = ir.node(
            "DequantizeLinear",
            [
                input_of(read),
                *(
                    add_constant(graph, f"{layer.name}_{name}", np.full(count, one))
                    for name, one in zip(("scale", "zero_point"), grid, strict=False)
                ),
            ],
            {"axis": _CHANNELS},
            metadata_props=dict(layer.metadata_props),
        )
        node.outputs[0].type, node.outputs[0].shape = floats.type, floats.shape
        graph.insert_before(layer, node)
        layer.replace_input_with(0, node.outputs[0])


def part_clamps(graph: "ir.Graph") -> None:
    """Write the ReLU between a `Gemm` of integers and readers of floats as a maximum.

    ONNX Runtime takes `Relu` and `Clip` for the end of the `Gemm`, finds no quantizer behind, and
    computes it all in float.
    """
    for layer in list(graph):
        if layer.op_type != "Gemm" or layer.domain or not is_dequantized(input_of(layer, 1)):
            continue
        clamp = sole_consumer(layer.outputs[0])
        if clamp is None or clamp.op_type not in _CLAMPS or not is_dequantized(input_of(layer)):
            continue
        readers = consumers(clamp.outputs[0])
        if readers and all(one.op_type == "QuantizeLinear" for one in readers):
            continue
        _write_bounds(clamp, graph)


def _write_bounds(clamp: "ir.Node", graph: "ir.Graph") -> None:
    import onnx_ir as ir

    bounds = clamp.inputs[1:]
    if clamp.op_type == "Relu":
        bounds = (shared_constant(graph, "zero", np.asarray(0, np.float32)),)
    value, nodes = input_of(clamp), []
    for operator, bound in zip(("Max", "Min"), bounds, strict=False):
        if bound is None:
            continue
        node = ir.node(operator, [value, bound], metadata_props=dict(clamp.metadata_props))
        value = node.outputs[0]
        value.type, value.shape = clamp.outputs[0].type, clamp.outputs[0].shape
        nodes.append(node)
    if nodes:
        graph.insert_before(clamp, nodes[:-1])
        replace_node(clamp, nodes[-1], graph)


def part_softmaxes(graph: "ir.Graph") -> None:
    """Put a maximum of one tensor, which changes nothing, between a softmax and its quantizer.

    ONNX Runtime computes a softmax between quantized tensors by a table of exponentials. Where no
    output of n is beyond 1.7 / n, its floats overflow, and the largest outputs are 0
    (`QLinearSoftmax`: a sum kept below the largest float / e**5 is divided by the output's scale
    first). In float it takes half as long (`benchmarks/softmax_kernels.py`).
    """
    import onnx_ir as ir

    for softmax in list(graph):
        if softmax.op_type != "Softmax" or not is_dequantized(input_of(softmax)):
            continue
        output = softmax.outputs[0]
        quantizers = [one for one in consumers(output) if one.op_type == "QuantizeLinear"]
        if not quantizers:
            continue
        same = ir.node("Max", [output], metadata_props=dict(softmax.metadata_props))
        same.outputs[0].type, same.outputs[0].shape = output.type, output.shape
        insert_after_value(output, same, graph)
        for one in quantizers:
            one.replace_input_with(0, same.outputs[0])

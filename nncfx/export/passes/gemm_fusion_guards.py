"""Keep integer matrix products from being computed in float because of the nodes after them."""

from typing import TYPE_CHECKING, Final

import numpy as np

from nncfx.export.ir.graph_edits import (
    constant_of,
    consumers,
    input_of,
    new_node,
    nodes_of,
    replace_node,
    shared_constant,
    sole_consumer,
)
from nncfx.export.ir.layer_inputs import is_dequantized

if TYPE_CHECKING:
    import onnx_ir as ir

_CLAMPS: Final = frozenset({"Clip", "Relu"})
_MATRIX_NDIM: Final = 2


def prevent_clamp_fusion(graph: "ir.Graph") -> None:
    """Write a clamp between an integer `Gemm` and readers of floats as a maximum and minimum.

    ONNX Runtime fuses `Relu` and `Clip` into the `Gemm`, finds no quantizer after it, and computes
    everything in float.
    """
    for layer in nodes_of(graph, "Gemm"):
        if not is_dequantized(input_of(layer, 1)):
            continue
        clamp = sole_consumer(layer.outputs[0])
        if clamp is None or clamp.op_type not in _CLAMPS or not is_dequantized(input_of(layer)):
            continue
        readers = consumers(clamp.outputs[0])
        if readers and all(one.op_type == "QuantizeLinear" for one in readers):
            continue
        _write_bounds(clamp, graph)


def _write_bounds(clamp: "ir.Node", graph: "ir.Graph") -> None:
    bounds = clamp.inputs[1:]
    if clamp.op_type == "Relu":
        bounds = (shared_constant(graph, "zero", np.asarray(0, np.float32)),)
    value, nodes = input_of(clamp), []
    for operator, bound in zip(("Max", "Min"), bounds, strict=False):
        if bound is None:
            continue
        nodes.append(new_node(operator, [value, bound], clamp, like=clamp.outputs[0]))
        value = nodes[-1].outputs[0]
    if nodes:
        graph.insert_before(clamp, nodes[:-1])
        replace_node(clamp, nodes[-1], graph)


def prevent_result_fusion(graph: "ir.Graph") -> None:
    """Separate quantizers from an integer product that other nodes read in float.

    ONNX Runtime has a kernel that returns integers and a kernel that returns floats, and uses
    neither if the result is read by both a quantizer and another node.
    """
    for node in nodes_of(graph, "Gemm", "MatMul"):
        are_integers = all(is_dequantized(input_of(node, index)) for index in (0, 1))
        result = node.outputs[0]
        is_float = any(one.op_type != "QuantizeLinear" for one in consumers(result))
        if are_integers and (is_float or result.is_graph_output()):
            prevent_quantizer_fusion(node, graph)


def prevent_quantizer_fusion(node: "ir.Node", graph: "ir.Graph") -> None:
    """Insert a maximum of one tensor, which changes nothing, between `node` and its quantizers."""
    output = node.outputs[0]
    quantizers = [one for one in consumers(output) if one.op_type == "QuantizeLinear"]
    if not quantizers:
        return
    same = new_node("Max", [output], node, like=output)
    graph.insert_after(node, same)
    for one in quantizers:
        one.replace_input_with(0, same.outputs[0])


def prevent_bias_fusion(graph: "ir.Graph") -> None:
    """Give the bias of an integer product as many axes as the product has.

    ONNX Runtime turns a product with more than two axes, all of known size, and a bias with one
    axis into a reshaping and a `Gemm` (`MatMulAddFusion`) before it looks for integers. The
    reshaping then separates the integers from the product, which is computed in float. It does
    not do so if the bias has more than two axes, or if the batch is open.
    """
    for node in nodes_of(graph, "MatMul"):
        if not all(is_dequantized(input_of(node, index)) for index in (0, 1)):
            continue
        result = node.outputs[0]
        addition = sole_consumer(result)
        if addition is None or addition.op_type != "Add" or addition.domain:
            continue
        shape = () if result.shape is None else tuple(result.shape)
        if len(shape) <= _MATRIX_NDIM or not all(isinstance(one, int) for one in shape):
            continue
        index = 1 if addition.inputs[0] is result else 0
        bias = constant_of(addition.inputs[index])
        if bias is None or bias.ndim > _MATRIX_NDIM:
            continue
        wide = np.reshape(bias, (1,) * (len(shape) - bias.ndim) + bias.shape)
        name = f"{input_of(addition, index).name}_{len(shape)}d"
        addition.replace_input_with(index, shared_constant(graph, name, wide))

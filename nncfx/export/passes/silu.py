"""Rewrite products of a tensor and its sigmoid (SiLU) so that they are computed in integers."""

from typing import TYPE_CHECKING, Final

import numpy as np

from nncfx.export.ir.fake_quantize import DOMAIN, FAKE_QUANTIZE, grid_of, is_fake_quantize
from nncfx.export.ir.graph_edits import consumers, input_of, new_node, shared_constant
from nncfx.quantization import SIGMOID_STEPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

_LARGEST: Final = SIGMOID_STEPS - 1


def quantize_silu(graph: "ir.Graph") -> None:
    """Round the sigmoid by which a quantized tensor is multiplied to steps of 1/256.

    ONNX Runtime then takes the sigmoid from a table and multiplies integers, instead of two
    conversions to float, an exponential and a product. The result differs by at most half a step
    of its own quantizer, which `integer_arithmetic` takes into account. Readers without a
    quantizer read the product with the exact sigmoid.
    """
    for product in list(graph):
        x = _gated(product)
        if x is None:
            continue
        readers = [one for one in consumers(product.outputs[0]) if _has_bytes(one)]
        if readers:
            _multiply(x, product, readers, graph)


def _gated(product: "ir.Node") -> "ir.Value | None":
    """Return `x` if `product` is `x * sigmoid(x)`, and `x` is quantized."""
    if product.op_type != "Mul" or product.domain:
        return None
    for index in range(2):
        sigmoid, x = input_of(product, index).producer(), input_of(product, 1 - index)
        if sigmoid is None or sigmoid.op_type != "Sigmoid" or sigmoid.domain:
            continue
        if sigmoid.inputs[0] is x and _has_bytes(x.producer()):
            return x
    return None


def _has_bytes(node: "ir.Node | None") -> bool:
    """Return whether `node` is a quantizer with one scale and at most 8 bits."""
    if node is None or not is_fake_quantize(node):
        return False
    grid = grid_of(node)
    return grid.axis is None and grid.high - grid.low < SIGMOID_STEPS


def _multiply(
    x: "ir.Value", product: "ir.Node", readers: "Sequence[ir.Node]", graph: "ir.Graph"
) -> None:
    """Let `readers` read `x` times its rounded sigmoid, instead of `product`."""
    sigmoid = new_node("Sigmoid", [x], product, like=x)
    constants = (
        shared_constant(graph, "gate_scale", np.asarray(1 / SIGMOID_STEPS, np.float32)),
        shared_constant(graph, "gate_zero_point", np.asarray(0, np.int32)),
    )
    limits = {"axis": -1, "quant_min": 0, "quant_max": _LARGEST}
    inputs = [sigmoid.outputs[0], *constants]
    rounded = new_node(FAKE_QUANTIZE, inputs, product, limits, domain=DOMAIN, like=x)
    gated = new_node("Mul", [x, rounded.outputs[0]], product, like=x)
    graph.insert_before(product, [sigmoid, rounded, gated])
    for reader in readers:
        reader.replace_input_with(0, gated.outputs[0])

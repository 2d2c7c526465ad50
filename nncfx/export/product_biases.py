"""Keep ONNX Runtime from multiplying integers as floats where a bias is added."""

from typing import TYPE_CHECKING, Final

import numpy as np

from nncfx.export.graph_edits import constant_of, input_of, shared_constant, sole_consumer
from nncfx.export.layer_inputs import is_dequantized

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["part_biases"]

_MATRIX_NDIM: Final = 2


def part_biases(graph: "ir.Graph") -> None:
    """Give the bias behind a product of integers as many axes as the product has.

    Of a product with more than two axes, all of a known size, and a bias with one, ONNX Runtime
    makes a reshaping and a `Gemm` (`MatMulAddFusion`), before it looks for integers: the reshaping
    then stands between them and the product, which is computed in float. It does not where the
    bias has more axes than a matrix. An open batch keeps it from that as well.
    """
    for node in list(graph):
        if node.op_type != "MatMul" or node.domain:
            continue
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

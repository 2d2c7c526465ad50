"""Write quantized weights of layers that compute in float in the packed form of ONNX Runtime."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.graph_edits import (
    consumers,
    input_of,
    new_node,
    replace_node,
    shared_constant,
)
from nncfx.export.ir.grid_propagation import is_quantized
from nncfx.export.ir.integer_weights import IntegerWeight

if TYPE_CHECKING:
    import onnx_ir as ir

_DOMAIN: Final = "com.microsoft"
_BLOCKS: Final = (16, 32, 64, 128, 256)
_LONGEST: Final = 32
"""The longest block of a matrix with one scale per output; its inputs also share block scales.

Sentence embeddings of all-MiniLM-L6-v2 keep a cosine of 0.9993 with 32, 0.9988 with 128.
"""
_BITS: Final = (4, 8)
IN_FLOAT: Final = 1
"""The accuracy level at which inputs stay float; at 4 they are rounded to 8 bits by blocks."""


def pack_weights(
    model: "ir.Model", weights: list[IntegerWeight], accuracy_level: int
) -> list[IntegerWeight]:
    """Replace products of a float tensor and a quantized matrix by `MatMulNBits`.

    ONNX Runtime keeps the packed integers in memory and dequantizes them block by block as it
    multiplies; a `DequantizeLinear` would expand the whole matrix in every run. A matrix with one
    scale per output is written in blocks that repeat the scale. In float (`accuracy_level` 1), an
    8-bit matrix is written as two 4-bit matrices, because ONNX Runtime 1.32 takes 20 times as long
    for 8 bits.

    Returns:
        The weights that are left, in the same order.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
    """
    left = [one for one in weights if not _packed(one, model.graph, accuracy_level)]
    if len(left) < len(weights):
        model.opset_imports[_DOMAIN] = 1
    return left


def _packed(weight: IntegerWeight, graph: "ir.Graph", accuracy_level: int) -> bool:
    """Replace the products that read `weight` by packed ones; return whether none is left."""
    values = weight.node.outputs[0]
    for layer in consumers(values):  # several if layers share a weight
        matrix = None if layer.domain else _matrix(layer, weight)
        if matrix is not None and not is_quantized(input_of(layer)):
            replace_node(layer, _products(layer, matrix, graph, accuracy_level), graph)
    if values.uses() or values.is_graph_output():
        return False
    graph.remove(weight.node, safe=True)
    return True


@dataclass(frozen=True, kw_only=True, eq=False)
class _Matrix:
    """A weight as `MatMulNBits` reads it: unsigned, one row per output, its scales per block.

    Attributes:
        name: of the weight.
        integers: o x i, in [0, 2^bits).
        scale: o x blocks, float32; the last block of a row may be shorter.
        zero_point: o x blocks, in [0, 2^bits).
        block: how many inputs share a scale.
        bits: 4 or 8.
    """

    name: str
    integers: npt.NDArray[np.int64]
    scale: npt.NDArray[np.float32]
    zero_point: npt.NDArray[np.int64]
    block: int
    bits: int


def _matrix(layer: "ir.Node", weight: IntegerWeight) -> _Matrix | None:
    """Return the matrix of a linear layer; None for other layers and unsupported grids."""
    grid = weight.grid
    bits = next((bits for bits in _BITS if grid.high - grid.low < 2**bits), None)
    if not _is_product(layer, weight) or bits is None:
        return None
    by_row = layer.op_type == "Gemm" and layer.attributes["transB"].as_int() == 1
    integers = weight.integers if by_row else weight.integers.T
    outputs, length = integers.shape
    block = weight.block or min(_LONGEST, max(_BLOCKS[0], 2 ** int(np.log2(length))))
    # scales lie along the inputs if these are in blocks, else along the outputs
    lies_so = grid.scale.size == 1 or grid.axis == int(by_row == bool(weight.block))
    if block not in _BLOCKS or not lies_so:
        return None
    blocks = (outputs, -(-length // block))
    scale, zero_point = (
        np.broadcast_to((one if by_row else one.T) if weight.block else one.reshape(-1, 1), blocks)
        for one in (grid.scale, grid.zero_point)
    )
    shift = 2 ** (bits - 1) if grid.low < 0 else 0
    return _Matrix(
        name=str(input_of(weight.node).name),
        integers=integers + shift,
        scale=scale.astype(np.float32),
        zero_point=zero_point.astype(np.int64) + shift,
        block=block,
        bits=bits,
    )


def _is_product(layer: "ir.Node", weight: IntegerWeight) -> bool:
    """Return whether `layer` multiplies by `weight` from the right and adds at most a vector."""
    if layer.op_type not in ("Gemm", "MatMul") or weight.integers.ndim != 2:  # noqa: PLR2004 (a matrix)
        return False
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None  # noqa: PLR2004 (after the factors)
    is_vector = bias is None or (bias.shape is not None and len(bias.shape) == 1)
    return is_vector and layer.inputs[1] is weight.node.outputs[0]


def _products(
    layer: "ir.Node", matrix: _Matrix, graph: "ir.Graph", accuracy_level: int
) -> "ir.Node":
    """Return the node that replaces `layer`; it is not in the graph yet."""
    bias = layer.inputs[2:]
    if accuracy_level != IN_FLOAT or matrix.bits == _BITS[0]:
        return _product(layer, matrix, bias, graph, accuracy_level)
    high, low = _halves(matrix)
    terms = [
        _product(layer, high, bias, graph, accuracy_level),
        _product(layer, low, (), graph, accuracy_level),
    ]
    graph.insert_after(layer, terms)
    return new_node("Add", [one.outputs[0] for one in terms], layer)


def _halves(matrix: _Matrix) -> Iterator[_Matrix]:
    """Yield two matrices of 4 bits whose sum is `matrix`: integer = 16 * high + low."""
    for name, shift, step in (("high", 4, 16), ("low", 0, 1)):
        yield replace(
            matrix,
            name=f"{matrix.name}_{name}",
            integers=(matrix.integers >> shift) & 15,
            scale=matrix.scale * np.float32(step),  # exact
            zero_point=(matrix.zero_point >> shift) & 15,
            bits=4,
        )


def _product(
    layer: "ir.Node",
    matrix: _Matrix,
    bias: Sequence["ir.Value | None"],
    graph: "ir.Graph",
    accuracy_level: int,
) -> "ir.Node":
    """Return the packed product that reads the input of `layer` and adds `bias`."""
    outputs, length = matrix.integers.shape
    blocks = matrix.scale.shape[1]
    padded = np.pad(matrix.integers, ((0, 0), (0, blocks * matrix.block - length)))
    packed = _bytes(padded, matrix.bits).reshape(outputs, blocks, -1)
    inputs: list[ir.Value | None] = [
        input_of(layer),
        shared_constant(graph, f"{matrix.name}_integers", packed),
        shared_constant(graph, f"{matrix.name}_scale", matrix.scale),
    ]
    if (matrix.zero_point != 2 ** (matrix.bits - 1)).any():
        zero_points = _bytes(matrix.zero_point, matrix.bits)
        inputs.append(shared_constant(graph, f"{matrix.name}_zero_point", zero_points))
    if bias:
        inputs += [*[None] * (5 - len(inputs)), *bias]
    sizes = {
        "K": length,
        "N": outputs,
        "bits": matrix.bits,
        "block_size": matrix.block,
        "accuracy_level": accuracy_level,
    }
    return new_node("MatMulNBits", inputs, layer, sizes, domain=_DOMAIN)


def _bytes(rows: npt.NDArray[np.int64], bits: int) -> npt.NDArray[np.uint8]:
    """Return each row as bytes; the first of two 4-bit integers is the lower half of a byte."""
    if bits == 8:  # noqa: PLR2004 (a byte)
        return rows.astype(np.uint8)
    even = np.pad(rows, ((0, 0), (0, rows.shape[1] % 2))).astype(np.uint8)
    return (even[:, ::2] | (even[:, 1::2] << 4)).astype(np.uint8)

"""Fold batch norms into the scales of integer weights."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nncfx.export.graph_edits import add_constant, constant_of, input_of, sole_consumer
from nncfx.export.integer_weights import IntegerWeight
from nncfx.export.layer_inputs import BIAS, OUTPUT_AXIS

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["fold_batch_norms"]


def fold_batch_norms(graph: "ir.Graph", weights: list[IntegerWeight]) -> None:
    """Fold each batch norm behind a layer with an integer weight into that weight's scale.

    A batch norm multiplies each output channel by a number, and so does the scale of an integer:
    the integers stay what the simulation quantized (negated, where the number is negative) and
    nothing is rounded again. One scale for the tensor becomes one per channel.
    """
    for weight in weights:
        layer = sole_consumer(weight.node.outputs[0])
        if layer is None or layer.op_type not in OUTPUT_AXIS or layer.domain:
            continue
        norm = sole_consumer(layer.outputs[0])
        if norm is None or norm.op_type != "BatchNormalization" or not _foldable(layer, weight):
            continue
        _fold(norm, layer, weight, graph)


def _foldable(layer: "ir.Node", weight: IntegerWeight) -> bool:
    axis = OUTPUT_AXIS[layer.op_type]
    if weight.grid.axis not in (None, axis):
        return False
    if layer.op_type == "ConvTranspose":
        return layer.attributes["group"].as_int() == 1
    return layer.op_type == "Conv" or layer.attributes["transB"].as_int() == 1


def _fold(norm: "ir.Node", layer: "ir.Node", weight: IntegerWeight, graph: "ir.Graph") -> None:
    gamma, beta, mean, variance = (
        np.asarray(constant_of(value), np.float64) for value in norm.inputs[1:5]
    )
    factor = gamma / np.sqrt(variance + norm.attributes["epsilon"].as_float())
    has_bias = len(layer.inputs) > BIAS
    bias = constant_of(layer.inputs[BIAS]) if has_bias else None
    centred = -mean if bias is None else bias - mean
    folded = (centred * factor + beta).astype(np.float32)
    _set_bias(layer, add_constant(graph, f"{input_of(weight.node).name}_bias", folded))
    _rescale(weight, factor, OUTPUT_AXIS[layer.op_type])
    output = layer.outputs[0]
    output.shape, output.type = norm.outputs[0].shape, norm.outputs[0].type
    norm.outputs[0].replace_all_uses_with(output, replace_graph_outputs=True)
    graph.remove(norm, safe=True)


def _set_bias(layer: "ir.Node", bias: "ir.Value") -> None:
    if len(layer.inputs) <= BIAS:
        layer.resize_inputs(BIAS + 1)
    layer.replace_input_with(BIAS, bias)


def _rescale(weight: IntegerWeight, factor: npt.NDArray[np.float64], axis: int) -> None:
    grid = weight.grid
    shape = [1] * weight.integers.ndim
    shape[axis] = -1
    sign = np.where(factor < 0, -1, 1)
    zero_point = np.broadcast_to(grid.zero_point, factor.shape) * sign
    scale = np.broadcast_to(grid.scale, factor.shape) * np.abs(factor)
    # A channel that the batch norm multiplies by 0 is 0: in integers, for scales are positive.
    dead = scale < np.finfo(np.float32).tiny
    integers = np.clip(weight.integers * sign.reshape(shape), grid.low, grid.high)
    weight.integers = np.where(dead.reshape(shape), zero_point.reshape(shape), integers)
    weight.grid = replace(
        grid,
        axis=axis,
        scale=np.where(dead, 1.0, scale).astype(np.float32),
        zero_point=np.where(dead, 0, zero_point),
    )

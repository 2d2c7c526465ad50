"""Fold batch norms into the scales of integer weights."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from nncfx.export.ir.fake_quantize import Grid
from nncfx.export.ir.graph_edits import add_constant, constant_of, input_of, sole_consumer
from nncfx.export.ir.integer_weights import IntegerWeight
from nncfx.export.ir.layer_inputs import BIAS, OUTPUT_AXIS
from nncfx.storage.models.norm_statistics import norm_affine

if TYPE_CHECKING:
    import onnx_ir as ir


def fold_batch_norms(graph: "ir.Graph", weights: list[IntegerWeight]) -> None:
    """Fold each batch norm after a layer with an integer weight into that weight's scale.

    A batch norm multiplies each output channel by a number, and so does the scale of an integer,
    so the integers stay those of the simulation (negated if the number is negative) and nothing is
    rounded again. A single scale becomes one scale per channel.
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
        torch.from_numpy(np.array(constant_of(value), np.float64)) for value in norm.inputs[1:5]
    )
    bias = constant_of(layer.inputs[BIAS]) if len(layer.inputs) > BIAS else None
    mean = mean if bias is None else mean - torch.from_numpy(np.array(bias, np.float64))
    epsilon = norm.attributes["epsilon"].as_float()
    factor, shift = (one.numpy() for one in norm_affine((mean, variance), epsilon, gamma, beta))
    folded = shift.astype(np.float32)
    if len(layer.inputs) <= BIAS:
        layer.resize_inputs(BIAS + 1)
    name = f"{input_of(weight.node).name}_bias"
    layer.replace_input_with(BIAS, add_constant(graph, name, folded))
    axis = OUTPUT_AXIS[layer.op_type]
    weight.integers, weight.grid = rescaled(weight.integers, weight.grid, factor, axis)
    output = layer.outputs[0]
    output.shape, output.type = norm.outputs[0].shape, norm.outputs[0].type
    norm.outputs[0].replace_all_uses_with(output, replace_graph_outputs=True)
    graph.remove(norm, safe=True)


def rescaled(
    integers: npt.NDArray[np.int64], grid: Grid, factor: npt.NDArray[np.float64], axis: int
) -> tuple[npt.NDArray[np.int64], Grid]:
    """Return integers and grid of a weight times `factor`, which has one number per channel.

    A channel times 0 gets integers 0 and the scale 1, because scales are positive.

    Args:
        integers: of the weight.
        grid: of the weight, per tensor or along `axis`.
        factor: of any sign.
        axis: of the channels.
    """
    shape = [1] * integers.ndim
    shape[axis] = -1
    sign = np.where(factor < 0, -1, 1)
    scale = np.broadcast_to(grid.scale, factor.shape) * np.abs(factor)
    dead = scale < np.finfo(np.float32).tiny
    zero_point = np.where(dead, 0, np.broadcast_to(grid.zero_point, factor.shape) * sign)
    turned = np.clip(integers * sign.reshape(shape), grid.low, grid.high)
    return (
        np.where(dead.reshape(shape), 0, turned),
        replace(
            grid,
            axis=axis,
            scale=np.where(dead, 1.0, scale).astype(np.float32),
            zero_point=zero_point,
        ),
    )

"""Look rows up in quantized tables without dequantizing the whole table."""

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.graph_edits import input_of, replace_node, shared_constant, sole_consumer
from nncfx.export.ir.integer_weights import IntegerWeight
from nncfx.export.ir.number_types import half_byte_type, number_type
from nncfx.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["look_up_integers"]

_DOMAIN: Final = "com.microsoft"
_GATHER_POINTS: Final = "GatherND"


def look_up_integers(
    model: "ir.Model", weights: list[IntegerWeight], target: Target
) -> list[IntegerWeight]:
    """Turn each look-up in a dequantized table into one in the integers, dequantized behind it.

    A `DequantizeLinear` of the table would be computed anew in every run. A table with one scale
    per row becomes a look-up of its integers and one of its scales; one in blocks, ONNX Runtime's
    `GatherBlockQuantized` where `target` has it. Experts' matrices are rows of their stack.

    Returns:
        The weights that are left, in the same order.
    """
    return [one for one in weights if not _looked_up(one, model, target)]


def _looked_up(weight: IntegerWeight, model: "ir.Model", target: Target) -> bool:
    layer = sole_consumer(weight.node.outputs[0])
    if layer is None or not _picks_rows(layer, weight):
        return False
    grid = weight.grid
    if weight.block is None:
        whole_rows, scale = grid.axis == 0, grid.scale.reshape(-1, 1)
    else:
        whole_rows, scale = weight.block == weight.integers.shape[grid.axis or 0], grid.scale
    if whole_rows and not grid.zero_point.any():
        _gather_rows(layer, weight, scale, model.graph)
    elif weight.block is not None and target.block_weights and half_byte_type(grid) is not None:
        model.opset_imports[_DOMAIN] = 1
        _gather_blocks(layer, weight, model.graph)
    else:
        return False
    model.graph.remove(weight.node, safe=True)
    return True


def _picks_rows(layer: "ir.Node", weight: IntegerWeight) -> bool:
    """Return whether `layer` picks from `weight` what lies at indices of the first axis."""
    if layer.inputs[0] is not weight.node.outputs[0] or layer.domain:
        return False
    if layer.op_type == _GATHER_POINTS:
        shape, batched = input_of(layer, 1).shape, "batch_dims" in layer.attributes
        by_one = shape is not None and shape[-1] == 1
        return by_one and not (batched and layer.attributes["batch_dims"].as_int())
    rows = "axis" not in layer.attributes or layer.attributes["axis"].as_int() == 0
    is_stack = weight.block is not None
    return layer.op_type == "Gather" and rows and (is_stack or weight.integers.ndim == 2)  # noqa: PLR2004 (a table)


def _gather_blocks(layer: "ir.Node", weight: IntegerWeight, graph: "ir.Graph") -> None:
    import onnx_ir as ir

    name, grid = input_of(weight.node).name, weight.grid
    dtype = half_byte_type(grid)
    table, zero_point = (
        shared_constant(graph, f"{name}_{part}", array.astype(np.uint8), dtype)
        for part, array in (("integers", weight.integers), ("zero_point", grid.zero_point))
    )
    scale = shared_constant(graph, f"{name}_scale", grid.scale)
    indices = input_of(layer, 1)
    if layer.op_type == _GATHER_POINTS:
        last = shared_constant(graph, "last_axis", np.array([-1]))
        flat = ir.node("Squeeze", [indices, last])
        flat.outputs[0].type = indices.type
        graph.insert_before(layer, flat)
        indices = flat.outputs[0]
    node = ir.node(
        "GatherBlockQuantized",
        [table, indices, scale, zero_point],
        {"gather_axis": 0, "quantize_axis": grid.axis, "block_size": weight.block},
        domain=_DOMAIN,
        metadata_props=dict(layer.metadata_props),
    )
    replace_node(layer, node, graph)


def _gather_rows(
    layer: "ir.Node", weight: IntegerWeight, scale: npt.NDArray[np.float32], graph: "ir.Graph"
) -> None:
    import onnx_ir as ir

    name, indices = input_of(weight.node).name, input_of(layer, 1)
    dtype = number_type(weight.grid, signed_first=True)
    table = shared_constant(graph, f"{name}_integers", weight.integers.astype(dtype.numpy()))
    scales = shared_constant(graph, f"{name}_scale", scale)
    nodes = [
        ir.node(layer.op_type, [table, indices], {}),
        ir.node(layer.op_type, [scales, indices], {}),
    ]
    nodes.append(ir.node("Cast", [nodes[0].outputs[0]], {"to": ir.DataType.FLOAT}))
    for node, kind in zip(nodes, (dtype, ir.DataType.FLOAT, ir.DataType.FLOAT), strict=True):
        node.metadata_props.update(layer.metadata_props)
        node.outputs[0].type = ir.TensorType(kind)
    graph.insert_before(layer, nodes)
    product = ir.node(
        "Mul",
        [nodes[2].outputs[0], nodes[1].outputs[0]],
        metadata_props=dict(layer.metadata_props),
    )
    replace_node(layer, product, graph)

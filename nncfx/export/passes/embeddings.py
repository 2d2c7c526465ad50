"""Look up rows of quantized tables without dequantizing a whole table or storing it twice."""

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.graph_edits import (
    constant_of,
    input_of,
    new_node,
    nodes_of,
    replace_node,
    shared_constant,
    sole_consumer,
)
from nncfx.export.ir.integer_weights import IntegerWeight
from nncfx.export.ir.number_types import int4_type, number_type
from nncfx.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir

_DOMAIN: Final = "com.microsoft"
_GATHER_POINTS: Final = "GatherND"
_MIDDLE: Final = 128
"""The byte that represents zero in packed weights, which are unsigned."""


def look_up_integers(
    model: "ir.Model", weights: list[IntegerWeight], target: Target
) -> list[IntegerWeight]:
    """Replace each look-up in a dequantized table by a look-up of integers, dequantized later.

    A `DequantizeLinear` of the table would be recomputed in every run. For a table with one scale
    per row, the file looks up integers and scales; for a table in blocks, it uses ONNX Runtime's
    `GatherBlockQuantized` if `target` has it. Matrices of experts are rows of their stack.

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
    elif target.block_weights and _has_blocks(weight) and int4_type(grid) is not None:
        model.opset_imports[_DOMAIN] = 1
        _gather_blocks(layer, weight, model.graph)
    else:
        return False
    model.graph.remove(weight.node, safe=True)
    return True


def _has_blocks(weight: IntegerWeight) -> bool:
    """Return whether a weight's blocks fit ONNX Runtime: a power of 2, at least 16."""
    return weight.block is not None and weight.block in {1 << n for n in range(4, 31)}


def _picks_rows(layer: "ir.Node", weight: IntegerWeight) -> bool:
    """Return whether `layer` looks up entries of `weight` along the first axis."""
    if layer.inputs[0] is not weight.node.outputs[0] or layer.domain:
        return False
    if layer.op_type == _GATHER_POINTS:
        shape = input_of(layer, 1).shape
        by_one = shape is not None and shape[-1] == 1
        return by_one and not layer.attributes.get_int("batch_dims", 0)
    is_of_rows = layer.op_type == "Gather" and not layer.attributes.get_int("axis", 0)
    return is_of_rows and (weight.block is not None or weight.integers.ndim == 2)  # noqa: PLR2004 (a table)


def _gather_blocks(layer: "ir.Node", weight: IntegerWeight, graph: "ir.Graph") -> None:
    name, grid = input_of(weight.node).name, weight.grid
    dtype = int4_type(grid)
    table, zero_point = (
        shared_constant(graph, f"{name}_{part}", array.astype(np.uint8), dtype)
        for part, array in (("integers", weight.integers), ("zero_point", grid.zero_point))
    )
    scale = shared_constant(graph, f"{name}_scale", grid.scale)
    indices = input_of(layer, 1)
    if layer.op_type == _GATHER_POINTS:
        last = shared_constant(graph, "last_axis", np.array([-1]))
        flat = new_node("Squeeze", [indices, last], None)
        flat.outputs[0].type = indices.type
        graph.insert_before(layer, flat)
        indices = flat.outputs[0]
    axes = {"gather_axis": 0, "quantize_axis": grid.axis, "block_size": weight.block}
    inputs = [table, indices, scale, zero_point]
    replace_node(
        layer, new_node("GatherBlockQuantized", inputs, layer, axes, domain=_DOMAIN), graph
    )


def _gather_rows(
    layer: "ir.Node", weight: IntegerWeight, scale: npt.NDArray[np.float32], graph: "ir.Graph"
) -> None:
    import onnx_ir as ir

    name, indices = input_of(weight.node).name, input_of(layer, 1)
    dtype = number_type(weight.grid, signed_first=True)
    table = shared_constant(graph, f"{name}_integers", weight.integers.astype(dtype.numpy()))
    scales = shared_constant(graph, f"{name}_scale", scale)
    rows, steps = (new_node(layer.op_type, [one, indices], layer) for one in (table, scales))
    floats = new_node("Cast", [rows.outputs[0]], layer, {"to": ir.DataType.FLOAT})
    rows.outputs[0].type = ir.TensorType(dtype)
    steps.outputs[0].type = floats.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    graph.insert_before(layer, [rows, steps, floats])
    factors = [floats.outputs[0], steps.outputs[0]]
    replace_node(layer, new_node("Mul", factors, layer), graph)


def share_tied_tables(graph: "ir.Graph") -> None:
    """Look up rows in the packed integers of a product that has the same integers.

    Language models often use one matrix as a table at the beginning and as a layer at the end;
    packed for `MatMulNBits`, it would be stored a second time. Only 8-bit integers are shared,
    because older versions of ONNX Runtime cannot look up rows of two integers per byte.
    """
    packed = {input_of(node, 1): None for node in graph if node.op_type == "MatMulNBits"}
    for node in nodes_of(graph, "Gather"):
        table, cast = constant_of(node.inputs[0]), sole_consumer(node.outputs[0])
        if table is None or table.dtype != np.int8 or cast is None or cast.op_type != "Cast":
            continue
        same = next((one for one in packed if _holds(one, table)), None)
        axes = input_of(node, 1).shape
        if same is not None and axes is not None:
            _look_up(node, cast, same, [*[0] * len(axes), table.shape[1]])


def _holds(packed: "ir.Value", table: npt.NDArray[np.int8]) -> bool:
    """Return whether the bytes of `packed`, o x blocks x block, are those of `table`."""
    if packed.shape is None or packed.shape[0] != len(table):
        return False
    values = constant_of(packed)
    if values is None or values.size != table.size:  # padded rows have more, half bytes fewer
        return False
    signed = values.reshape(table.shape).astype(np.int16) - _MIDDLE
    return np.array_equal(signed, table)


def _look_up(look_up: "ir.Node", cast: "ir.Node", packed: "ir.Value", sizes: list[int]) -> None:
    """Replace an int8 look-up and its `cast` by a look-up in `packed`.

    Args:
        look_up: The `Gather` of a table to remove.
        cast: The cast to float right after it.
        packed: The bytes of a `MatMulNBits`, with the integers of the table.
        sizes: The shape of the result; 0 for an axis of the indices.
    """
    import onnx_ir as ir

    graph = look_up.graph
    assert isinstance(graph, ir.Graph)  # noqa: S101 (the node is in a graph)
    shape = shared_constant(graph, f"rows_of_{sizes[-1]}_{len(sizes)}", np.array(sizes))
    middle = shared_constant(graph, "middle_of_bytes", np.array(_MIDDLE, np.float32))
    blocks = new_node("Gather", [packed, input_of(look_up, 1)], look_up, {"axis": 0})
    rows = new_node("Reshape", [blocks.outputs[0], shape], look_up)
    counted = new_node("Cast", [rows.outputs[0]], look_up, {"to": ir.DataType.FLOAT})
    blocks.outputs[0].type = rows.outputs[0].type = ir.TensorType(ir.DataType.UINT8)
    counted.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    graph.insert_before(cast, [blocks, rows, counted])
    replace_node(cast, new_node("Sub", [counted.outputs[0], middle], look_up), graph)
    graph.remove(look_up, safe=True)

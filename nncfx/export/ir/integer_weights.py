"""Store fake-quantized weights as integers."""

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.fake_quantize import Grid, grid_of, is_fake_quantize
from nncfx.export.ir.graph_edits import (
    add_constant,
    constant_of,
    consumers,
    input_of,
    new_node,
    node_like,
    replace_node,
    sole_consumer,
)
from nncfx.export.ir.number_types import activation_grid, int4_type, number_type, weight_grid
from nncfx.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir


_JOINING: Final = frozenset({"Concat", "Expand", "Tile"})
_RESHAPING: Final = frozenset({"Reshape", "Squeeze", "Transpose", "Unsqueeze"})


@dataclass(kw_only=True, eq=False)
class IntegerWeight:
    """A weight that will be stored as integers.

    Attributes:
        node: the fake-quantize node of the weight; `store` replaces it.
        integers: the integers of the weight, int64.
        grid: its grid; with blocks, scale and zero point have the axes of the weight.
        block: how many neighbours along the grid's axis share a scale; None if all do.
    """

    node: "ir.Node"
    integers: npt.NDArray[np.int64]
    grid: Grid
    block: int | None = None


def integer_weights(graph: "ir.Graph", target: Target) -> list[IntegerWeight]:
    """Return the fake-quantized constants of `graph`, each with its integers, one per reader.

    Transpositions after a weight are applied to its integers.
    """
    found = []
    for node in [one for one in graph if is_fake_quantize(one)]:
        # a node without a graph was a repeated quantizer, removed meanwhile
        values = None if node.graph is None else constant_of(input_of(node))
        if values is None or _is_joined(node.outputs[0]):
            continue
        grid = grid_of(node)
        integers = grid.integers(values)
        wanted = weight_grid(grid, target)
        if not np.array_equal(wanted.scale, grid.scale):
            scale, zero_point = grid.along(values.ndim)
            integers = wanted.integers((integers - zero_point) * scale)
        else:
            integers = integers + (wanted.low - grid.low)
        weights = (
            _moved(IntegerWeight(node=reader, integers=integers, grid=wanted), graph)
            for reader in _one_per_use(node, graph)
            if not _is_joined(reader.outputs[0])
        )
        found += [_for_its_side(weight, target) for weight in weights]
    return found


def _is_joined(constant: "ir.Value") -> bool:
    """Return whether a constant is concatenated with computed values, or repeated for that.

    Such a constant is not a weight; examples are the class token of a transformer and the queries
    of a resampler, which may have other axes before.
    """
    return all(
        one.op_type in _JOINING or (one.op_type in _RESHAPING and _is_joined(one.outputs[0]))
        for one in consumers(constant)
    )


def _for_its_side(weight: IntegerWeight, target: Target) -> IntegerWeight:
    """Return `weight`, on the grid of an activation if it is the left operand of a product.

    ONNX Runtime multiplies signed by unsigned integers only if the signed operand is on the right.
    """
    output = weight.node.outputs[0]
    reader = sole_consumer(output)
    if reader is None or not _is_product(reader) or reader.inputs[0] is not output:
        return weight
    grid = activation_grid(weight.grid, target)
    return replace(weight, grid=grid, integers=weight.integers + (grid.low - weight.grid.low))


def _one_per_use(node: "ir.Node", graph: "ir.Graph") -> list["ir.Node"]:
    """Return `node` and copies of it so that each has one use."""
    nodes = [node]
    for use in list(node.outputs[0].uses())[1:]:
        copy = node_like(node, node.inputs)
        graph.insert_after(node, copy)
        use.node.replace_input_with(use.idx, copy.outputs[0])
        nodes.append(copy)
    return nodes


def _moved(weight: IntegerWeight, graph: "ir.Graph") -> IntegerWeight:
    """Return `weight` with the movements after its quantizer applied to its integers.

    A second quantizer on the same grid after a movement changes nothing and is removed as well.
    """
    reader = sole_consumer(weight.node.outputs[0])
    while reader is not None and _moves(reader, weight):
        reader.outputs[0].replace_all_uses_with(weight.node.outputs[0])
        weight.node.outputs[0].shape = reader.outputs[0].shape
        graph.remove(reader, safe=True)
        reader = sole_consumer(weight.node.outputs[0])
    return weight


def _moves(reader: "ir.Node", weight: IntegerWeight) -> bool:
    """Apply the movement of `reader` to the integers; return False if it computes."""
    if is_fake_quantize(reader):
        return _is_repeated(reader, weight.node)
    if reader.domain or reader.op_type not in ("Transpose", "Reshape"):
        return False
    if reader.op_type == "Reshape":
        shape, behind = constant_of(reader.inputs[1]), sole_consumer(reader.outputs[0])
        if shape is None or not shape.all():
            return False
        is_turned = behind is not None and behind.op_type == "Transpose"
        if _is_product(behind) or (weight.grid.axis is None and is_turned):
            return _joined(weight, tuple(shape))
        is_matrix = shape.size == 2  # noqa: PLR2004 (a matrix)
        return (is_matrix or _is_picked(behind)) and _took_shape(weight, shape)
    _transpose(weight, list(reader.attributes["perm"].as_ints()))
    return True


def _is_picked(reader: "ir.Node | None") -> bool:
    """Return whether `reader` picks matrices of a stack, possibly after a transposition."""
    if reader is not None and reader.op_type == "Transpose":
        reader = sole_consumer(reader.outputs[0])
    return reader is not None and reader.op_type in ("Gather", "GatherND")


def _is_product(reader: "ir.Node | None") -> bool:
    return reader is not None and reader.op_type == "MatMul" and not reader.domain


def _joined(weight: IntegerWeight, shape: tuple[int, ...]) -> bool:
    """Merge neighbouring axes of a weight into `shape`, repeating its scales as needed.

    Returns False, and does nothing, if scales would lie along several axes.
    """
    grid, whole = weight.grid, weight.integers.reshape(shape)
    if weight.block is not None:
        return False
    if grid.axis is not None:
        count = len(grid.scale)
        behind = prod(weight.integers.shape[grid.axis + 1 :])
        steps = [prod(whole.shape[axis + 1 :]) for axis in range(whole.ndim)]
        axis = next(
            (
                axis
                for axis, (step, size) in enumerate(zip(steps, whole.shape, strict=True))
                if behind % step == 0 and step * size % (behind * count) == 0
            ),
            None,
        )
        if axis is None:
            return False
        number = np.arange(whole.shape[axis]) * steps[axis] // behind % count
        weight.grid = replace(
            grid, axis=axis, scale=grid.scale[number], zero_point=grid.zero_point[number]
        )
    weight.integers = whole
    return True


def _is_repeated(node: "ir.Node", before: "ir.Node") -> bool:
    """Return whether the fake-quantize `node` has one scale and the same grid as `before`."""
    grid = grid_of(node)
    return grid.axis is None and grid.equals(grid_of(before))


def _transpose(weight: IntegerWeight, order: list[int]) -> None:
    grid = weight.grid
    weight.integers = weight.integers.transpose(order)
    if grid.axis is None:
        return
    blocks = weight.block is not None
    weight.grid = replace(
        grid,
        axis=order.index(grid.axis),
        scale=grid.scale.transpose(order) if blocks else grid.scale,
        zero_point=grid.zero_point.transpose(order) if blocks else grid.zero_point,
    )


def _took_shape(weight: IntegerWeight, shape: npt.NDArray[np.int64]) -> bool:
    """Turn rows, each with a scale, into blocks of that length along the last axis of `shape`."""
    rows = weight.integers
    if rows.ndim != 2 or shape.size < 2 or weight.grid.axis != 0:  # noqa: PLR2004 (a matrix)
        return False
    whole = rows.reshape(tuple(shape))
    block = rows.shape[1]
    if whole.shape[-1] % block or weight.block is not None:
        return False
    weight.integers, weight.block = whole, block
    blocks = (*whole.shape[:-1], whole.shape[-1] // block)
    weight.grid = replace(
        weight.grid,
        axis=whole.ndim - 1,
        scale=weight.grid.scale.reshape(blocks),
        zero_point=weight.grid.zero_point.reshape(blocks),
    )
    return True


def store(weight: IntegerWeight, graph: "ir.Graph") -> None:
    """Replace the fake-quantize of `weight` by stored integers and one `DequantizeLinear`.

    The integers are int8, or as wide as needed; in blocks of at most 4 bits they are int4.
    """
    name = input_of(weight.node).name
    grid = weight.grid
    dtype = number_type(grid, signed_first=True)
    if weight.block is not None:
        dtype = int4_type(grid) or dtype
    attributes = {} if grid.axis is None else {"axis": grid.axis}
    if weight.block is not None:
        attributes["block_size"] = weight.block
    reader = sole_consumer(weight.node.outputs[0])
    parts = (
        ("integers", weight.integers.astype(dtype.numpy()), dtype),
        ("scale", grid.scale, None),
        ("zero_point", grid.zero_point.astype(dtype.numpy()), dtype),
    )
    node = new_node(
        "DequantizeLinear",
        [add_constant(graph, f"{name}_{part}", array, kind) for part, array, kind in parts],
        reader or weight.node,
        attributes,
    )
    if weight.node.outputs[0].type is None:  # the exporter infers no types after custom nodes
        weight.node.outputs[0].type = input_of(weight.node).type
    replace_node(weight.node, node, graph)

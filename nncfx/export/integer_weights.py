"""Store fake-quantized weights as integers."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nncfx.export.fake_quantize import Grid, grid_of, is_fake_quantize
from nncfx.export.graph_edits import (
    add_constant,
    constant_of,
    input_of,
    replace_node,
    sole_consumer,
)
from nncfx.export.number_types import number_type, weight_grid
from nncfx.export.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["IntegerWeight", "fold_into_constants", "integer_weights", "store"]


@dataclass(kw_only=True, eq=False)
class IntegerWeight:
    """A weight that is to be stored as integers.

    Attributes:
        node: the fake-quantize node in its place; `store` replaces it.
        integers: the integers of the weight, int64.
        grid: what they stand for.
    """

    node: "ir.Node"
    integers: npt.NDArray[np.int64]
    grid: Grid


def fold_into_constants(model: "ir.Model") -> None:
    """Compute, once and for all, what the quantized weights of `model` are computed from.

    Such as a weight times its mask: torch's exporter leaves that to the runtime where it is large.
    """
    from onnxscript.optimizer import fold_constants

    foldable: set[ir.Node] = set()
    for node in model.graph:
        before = [value.producer() for value in node.inputs if value is not None]
        known = [
            constant_of(value) is not None or producer in foldable
            for value, producer in zip(filter(None, node.inputs), before, strict=True)
        ]
        if known and all(known) and not is_fake_quantize(node):
            foldable.add(node)
    wanted = _ancestors(
        [node for node in model.graph if is_fake_quantize(node)],
        foldable,
    )
    if wanted:
        fold_constants(
            model,
            onnx_shape_inference=False,
            input_size_limit=0,
            output_size_limit=0,
            should_fold=lambda node: node in wanted,
        )


def _ancestors(nodes: Iterable["ir.Node"], among: AbstractSet["ir.Node"]) -> set["ir.Node"]:
    found: set[ir.Node] = set()
    left = list(nodes)
    while left:
        for value in left.pop().inputs:
            producer = None if value is None else value.producer()
            if producer is not None and producer in among - found:
                found.add(producer)
                left.append(producer)
    return found


def integer_weights(graph: "ir.Graph", target: Target) -> list[IntegerWeight]:
    """Return the fake-quantized constants of `graph`, each with its integers, one per reader.

    A transposition behind a weight is carried out on its integers.
    """
    found = []
    for node in [one for one in graph if is_fake_quantize(one)]:
        values = constant_of(input_of(node))
        if values is None:
            continue
        grid = grid_of(node)
        integers = grid.integers(values)
        wanted = weight_grid(grid, target)
        if not np.array_equal(wanted.scale, grid.scale):
            scale, zero_point = grid.along(values.ndim)
            integers = wanted.integers((integers - zero_point) * scale)
        else:
            integers = integers + (wanted.low - grid.low)
        found += [
            _transposed(IntegerWeight(node=reader, integers=integers, grid=wanted), graph)
            for reader in _one_per_use(node, graph)
        ]
    return found


def _one_per_use(node: "ir.Node", graph: "ir.Graph") -> list["ir.Node"]:
    """Return `node` and copies of it, such that each has one use."""
    import onnx_ir as ir

    nodes = [node]
    for use in list(node.outputs[0].uses())[1:]:
        copy = ir.node(
            node.op_type,
            node.inputs,
            {name: one.value for name, one in node.attributes.items()},
            domain=node.domain,
        )
        graph.insert_after(node, copy)
        use.node.replace_input_with(use.idx, copy.outputs[0])
        nodes.append(copy)
    return nodes


def _transposed(weight: IntegerWeight, graph: "ir.Graph") -> IntegerWeight:
    reader = sole_consumer(weight.node.outputs[0])
    if reader is None or reader.op_type != "Transpose" or reader.domain:
        return weight
    order = list(reader.attributes["perm"].as_ints())
    reader.outputs[0].replace_all_uses_with(weight.node.outputs[0])
    weight.node.outputs[0].shape = reader.outputs[0].shape
    graph.remove(reader, safe=True)
    axis = weight.grid.axis
    return IntegerWeight(
        node=weight.node,
        integers=weight.integers.transpose(order),
        grid=replace(weight.grid, axis=None if axis is None else order.index(axis)),
    )


def store(weight: IntegerWeight, graph: "ir.Graph") -> None:
    """Replace the fake-quantize of `weight` by stored integers and one `DequantizeLinear`."""
    import onnx_ir as ir

    name = input_of(weight.node).name
    dtype = number_type(weight.grid, signed_first=True)
    per_channel = {} if weight.grid.axis is None else {"axis": weight.grid.axis}
    reader = sole_consumer(weight.node.outputs[0])
    node = ir.node(
        "DequantizeLinear",
        [
            add_constant(graph, f"{name}_integers", weight.integers.astype(dtype.numpy())),
            add_constant(graph, f"{name}_scale", weight.grid.scale),
            add_constant(
                graph, f"{name}_zero_point", weight.grid.zero_point.astype(dtype.numpy())
            ),
        ],
        per_channel,
        metadata_props=dict((reader or weight.node).metadata_props),
    )
    replace_node(weight.node, node, graph)

"""Move quantizers of activations to where runtimes fuse them; every move is exact."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from nncfx.export.fake_quantize import DOMAIN, FAKE_QUANTIZE, Grid, grid_of, is_fake_quantize
from nncfx.export.graph_edits import (
    add_constant,
    constant_of,
    consumers,
    input_of,
    insert_after_value,
    sole_consumer,
)

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["arrange_quantizers", "is_movement", "is_quantized", "quantizer_like"]

# Operators whose outputs are elements of input 0: rounding before or after them is the same.
_MOVEMENTS: Final = frozenset(
    {
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "GlobalMaxPool",
        "Identity",
        "MaxPool",
        "ReduceMax",
        "ReduceMin",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    },
)


def is_movement(node: "ir.Node") -> bool:
    """Return whether the outputs of `node` are elements of its input 0, as they are, or 0."""
    return not node.domain and (node.op_type in _MOVEMENTS or _is_padding(node))


def _is_padding(node: "ir.Node") -> bool:
    """Return whether `node` puts elements of its input around it, or zeros, which any grid has."""
    if node.op_type != "Pad" or node.domain:
        return False
    value = node.inputs[2] if len(node.inputs) > 2 else None  # noqa: PLR2004 (behind the widths)
    around = np.zeros(1) if value is None else constant_of(value)
    return around is not None and not around.any()


def _pads_with_zeros(node: "ir.Node") -> bool:
    mode = node.attributes.get_string("mode", "constant")
    return _is_padding(node) and mode == "constant"


def is_quantized(value: "ir.Value") -> bool:
    """Return whether the elements of `value` come from fake-quantizes on one grid."""
    return _quantizer_behind(value) is not None


def _quantizer_behind(value: "ir.Value | None") -> "ir.Node | None":
    """Return a fake-quantize on whose grid all elements of `value` lie."""
    producer = None if value is None else value.producer()
    if producer is None or is_fake_quantize(producer):
        return producer
    if is_movement(producer):
        return _quantizer_behind(producer.inputs[0])
    if producer.op_type != "Concat" or producer.domain:
        return None
    behind = [_quantizer_behind(one) for one in producer.inputs]
    return _on_one_grid(behind)


def _on_one_grid(quantizers: "Sequence[ir.Node | None]") -> "ir.Node | None":
    """Return one of `quantizers` if they are on one grid, the same step for all elements."""
    found = [one for one in quantizers if one is not None]
    grids = [grid_of(one) for one in found]
    if len(found) < len(quantizers) or any(not one.equals(grids[0]) for one in grids):
        return None
    return found[0] if grids[0].axis is None else None


def arrange_quantizers(graph: "ir.Graph") -> None:
    """Rearrange the fake-quantize nodes of activations in `graph`.

    Equal ones of one tensor become one. One behind a movement (reshape, transpose, max pooling,
    ...) moves before it and is repeated behind it, so that the movement itself is done on
    integers; so is a concatenation of tensors on one grid. A ReLU or Clip that its quantizer
    implies is removed. Two in a row on different grids are kept apart by a Clip.
    """
    _merge_equal(graph)
    _remove_implied_clamps(graph)
    _pull_before_movements(graph)
    _repeat_behind_movements(graph)
    _merge_equal(graph)
    _remove_implied_clamps(graph)
    _keep_apart(graph)


def _quantizers(graph: "ir.Graph") -> list["ir.Node"]:
    return [node for node in graph if is_fake_quantize(node) and node.graph is not None]


def _merge_equal(graph: "ir.Graph") -> None:
    kept: dict[int, list[tuple[ir.Node, Grid]]] = {}
    for node in _quantizers(graph):
        grid = grid_of(node)
        source = input_of(node)
        before = source.producer()
        twins = kept.setdefault(id(source), [])
        twin = next((one for one, other in twins if other.equals(grid)), None)
        if is_fake_quantize(before) and before is not None and grid_of(before).equals(grid):
            twin = before
        if twin is None or node.outputs[0].is_graph_output():
            twins.append((node, grid))
            continue
        node.outputs[0].replace_all_uses_with(twin.outputs[0])
        graph.remove(node, safe=True)


def _pull_before_movements(graph: "ir.Graph") -> None:
    for node in reversed(_quantizers(graph)):
        while (movement := _movement_before(node)) is not None and grid_of(node).axis is None:
            source = input_of(movement)
            if is_fake_quantize(source.producer()) or len(consumers(source)) > 1:
                break
            if not _fits_all_parts(movement, grid_of(node)):
                break
            copy = quantizer_like(node, source)
            insert_after_value(source, copy, graph)
            movement.replace_input_with(0, copy.outputs[0])
            node = copy  # noqa: PLW2901 (the walk goes on from the copy)


def _fits_all_parts(movement: "ir.Node", grid: Grid) -> bool:
    """Return whether all outputs of `movement`, the parts of a Split, are quantized on `grid`."""
    if len(movement.outputs) == 1:
        return True
    if any(value.is_graph_output() for value in movement.outputs):
        return False
    readers = [one for value in movement.outputs for one in consumers(value)]
    return all(is_fake_quantize(one) and grid_of(one).equals(grid) for one in readers)


def _movement_before(node: "ir.Node") -> "ir.Node | None":
    source = node.inputs[0]
    producer = None if source is None else source.producer()
    return producer if producer is not None and is_movement(producer) else None


def _repeat_behind_movements(graph: "ir.Graph") -> None:
    for node in list(graph):
        before = _quantizer_of_inputs(node)
        if before is None:
            continue
        for value in node.outputs:
            readers = consumers(value)
            if not readers or all(is_fake_quantize(reader) for reader in readers):
                continue
            if _pads_with_zeros(node) and all(reader.op_type == "Conv" for reader in readers):
                continue  # runtimes make the padding a part of the convolution
            copy = quantizer_like(before, value)
            graph.insert_after(node, copy)
            _read_instead(value, copy)


def _quantizer_of_inputs(node: "ir.Node") -> "ir.Node | None":
    """Return a quantizer on whose grid the outputs of `node` lie because its inputs do."""
    joins = node.op_type == "Concat" and not node.domain
    if not (joins or is_movement(node)):
        return None
    moved = node.inputs if joins else node.inputs[:1]
    before = [None if value is None else value.producer() for value in moved]
    return _on_one_grid([one if is_fake_quantize(one) else None for one in before])


def _read_instead(value: "ir.Value", node: "ir.Node") -> None:
    """Let all readers of `value` but `node` read what `node` computes."""
    for use in list(value.uses()):
        if use.node is not node:
            use.node.replace_input_with(use.idx, node.outputs[0])


def quantizer_like(node: "ir.Node", source: "ir.Value") -> "ir.Node":
    """Return a copy of a fake-quantize node that reads `source`; it is not in the graph yet."""
    import onnx_ir as ir

    copy = ir.node(
        FAKE_QUANTIZE,
        [source, *node.inputs[1:]],
        {name: one.value for name, one in node.attributes.items()},
        domain=DOMAIN,
        metadata_props=dict(node.metadata_props),
    )
    copy.outputs[0].type, copy.outputs[0].shape = source.type, source.shape
    return copy


def _remove_implied_clamps(graph: "ir.Graph") -> None:
    for node in list(graph):
        bounds = _clamp_bounds(node)
        if bounds is None or node.outputs[0].is_graph_output():
            continue
        readers = consumers(node.outputs[0])
        source = node.inputs[0]
        if not readers or source is None or not all(map(is_fake_quantize, readers)):
            continue
        if all(_implies(grid_of(reader), bounds) for reader in readers):
            node.outputs[0].replace_all_uses_with(source)
            graph.remove(node, safe=True)


def _keep_apart(graph: "ir.Graph") -> None:
    """Clamp between two quantizers on different grids to what the second has, which is no change.

    ONNX Runtime makes one of two pairs in a row, on a third grid (`DoubleQDQPairsRemover`): values
    come out that nobody has simulated. It takes the clamp away itself, but later.
    """
    for node in _quantizers(graph):
        source = input_of(node)
        before = source.producer()
        if before is None or not is_fake_quantize(before) or sole_consumer(source) is not node:
            continue
        grid = grid_of(node)
        if grid.axis is not None or grid_of(before).equals(grid):
            continue
        copy = _clamped_to(grid, source, graph)
        graph.insert_before(node, copy)
        node.replace_input_with(0, copy.outputs[0])


def _clamped_to(grid: Grid, source: "ir.Value", graph: "ir.Graph") -> "ir.Node":
    import onnx_ir as ir

    bounds = [
        add_constant(
            graph, f"{source.name}_{end}", np.float32(steps - grid.zero_point) * grid.scale
        )
        for end, steps in (("least", grid.low), ("most", grid.high))
    ]
    producer = source.producer()
    metadata = {} if producer is None else producer.metadata_props
    node = ir.node("Clip", [source, *bounds], metadata_props=dict(metadata))
    node.outputs[0].type, node.outputs[0].shape = source.type, source.shape
    return node


def _clamp_bounds(node: "ir.Node") -> tuple[float, float] | None:
    if node.domain or node.op_type not in ("Relu", "Clip"):
        return None
    if node.op_type == "Relu":
        return 0.0, np.inf
    bounds = [-np.inf, np.inf]
    for index, value in enumerate(node.inputs[1:]):
        if value is not None:
            bound = constant_of(value)
            if bound is None:
                return None
            bounds[index] = float(bound)
    return bounds[0], bounds[1]


def _implies(grid: Grid, bounds: tuple[float, float]) -> bool:
    """Return whether a value clamped to `bounds` and one clamped by `grid` alone round alike."""
    steps = np.rint(np.asarray(bounds) / np.min(grid.scale)) + np.min(grid.zero_point)
    return grid.axis is None and bool(steps[0] <= grid.low and grid.high <= steps[1])

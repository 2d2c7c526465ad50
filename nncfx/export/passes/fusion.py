"""Move quantizers of activations to where runtimes fuse them, without changing values."""

from typing import TYPE_CHECKING

from nncfx.export.ir.fake_quantize import Grid, grid_of, is_fake_quantize
from nncfx.export.ir.graph_edits import consumers, input_of, insert_after_value, node_like
from nncfx.export.ir.grid_propagation import (
    fits_all_readers,
    is_movement,
    moved_outputs,
    pads_with_zeros,
    quantizer_of_inputs,
)
from nncfx.export.passes.clamps import (
    keep_quantizers_apart,
    remove_identities,
    remove_implied_clamps,
)

if TYPE_CHECKING:
    import onnx_ir as ir


def arrange_quantizers(graph: "ir.Graph") -> None:
    """Rearrange the fake-quantize nodes of activations in `graph`.

    Equal quantizers of one tensor are merged. A quantizer after a movement (reshape, transpose,
    max pooling, ...) moves before it and is repeated after it, so the movement itself runs on
    integers; so does a concatenation of tensors on one grid. A ReLU or Clip that its quantizer
    implies is removed, and so is arithmetic that changes nothing. Consecutive quantizers on
    different grids are separated by a Clip.
    """
    remove_identities(graph)
    _merge_equal(graph)
    remove_implied_clamps(graph)
    _pull_before_movements(graph)
    _repeat_behind_movements(graph)
    _merge_equal(graph)
    remove_implied_clamps(graph)
    keep_quantizers_apart(graph)


def _quantizers(graph: "ir.Graph") -> list["ir.Node"]:
    return [node for node in graph if is_fake_quantize(node)]


def _merge_equal(graph: "ir.Graph") -> None:
    kept: dict[int, list[tuple[ir.Node, Grid]]] = {}
    for node in _quantizers(graph):
        grid = grid_of(node)
        source = input_of(node)
        before = source.producer()
        twins = kept.setdefault(id(source), [])
        twin = next((one for one, other in twins if other.equals(grid)), None)
        if before is not None and is_fake_quantize(before) and grid_of(before).equals(grid):
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
            if not fits_all_readers(movement, grid_of(node)):
                break
            copy = quantizer_like(node, source)
            insert_after_value(source, copy, graph)
            movement.replace_input_with(0, copy.outputs[0])
            node = copy  # noqa: PLW2901 (the walk goes on from the copy)


def _movement_before(node: "ir.Node") -> "ir.Node | None":
    source = node.inputs[0]
    producer = None if source is None else source.producer()
    return producer if producer is not None and is_movement(producer) else None


def _repeat_behind_movements(graph: "ir.Graph") -> None:
    for node in list(graph):
        before = quantizer_of_inputs(node)
        if before is None:
            continue
        for value in moved_outputs(node):
            readers = consumers(value)
            if not readers or all(is_fake_quantize(reader) for reader in readers):
                continue
            if pads_with_zeros(node) and all(reader.op_type == "Conv" for reader in readers):
                continue  # runtimes fuse the padding into the convolution
            copy = quantizer_like(before, value)
            graph.insert_after(node, copy)
            _read_instead(value, copy)


def _read_instead(value: "ir.Value", node: "ir.Node") -> None:
    """Let all readers of `value` except `node` read the output of `node`."""
    for use in list(value.uses()):
        if use.node is not node:
            use.node.replace_input_with(use.idx, node.outputs[0])


def quantizer_like(node: "ir.Node", source: "ir.Value") -> "ir.Node":
    """Return a copy of a fake-quantize node that reads `source`; it is not in the graph yet."""
    copy = node_like(node, [source, *node.inputs[1:]])
    copy.outputs[0].type, copy.outputs[0].shape = source.type, source.shape
    return copy

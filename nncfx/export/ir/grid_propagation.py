"""Find the grid of a tensor's values from the quantizers before or after it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from nncfx.export.ir.fake_quantize import Grid, grid_of, is_fake_quantize
from nncfx.export.ir.graph_edits import constant_of, consumers

if TYPE_CHECKING:
    import onnx_ir as ir

# Operators whose outputs are elements of input 0: rounding before or after them is the same.
_MOVEMENTS: Final = frozenset(
    {
        *("DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
        *("GlobalMaxPool", "Identity", "MaxPool", "ReduceMax", "ReduceMin", "Reshape", "Slice"),
        *("SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)


def is_movement(node: "ir.Node") -> bool:
    """Return whether the outputs of `node` are unchanged elements of its input 0, or 0."""
    return not node.domain and (node.op_type in _MOVEMENTS or _is_padding(node))


def _is_padding(node: "ir.Node") -> bool:
    """Return whether `node` pads with elements of its input, or with zeros, which any grid has."""
    if node.op_type != "Pad" or node.domain:
        return False
    value = node.inputs[2] if len(node.inputs) > 2 else None  # noqa: PLR2004 (after the widths)
    around = np.zeros(1) if value is None else constant_of(value)
    return around is not None and not around.any()


def pads_with_zeros(node: "ir.Node") -> bool:
    """Return whether `node` pads its input with zeros, not with elements of it."""
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
    if value not in moved_outputs(producer):
        return None
    return _on_one_grid([_quantizer_behind(one) for one in _moved_inputs(producer)])


def quantizer_of_inputs(node: "ir.Node") -> "ir.Node | None":
    """Return a quantizer right before `node` whose grid also holds the outputs of `node`."""
    before = [None if value is None else value.producer() for value in _moved_inputs(node)]
    return _on_one_grid([one if is_fake_quantize(one) else None for one in before])


def moved_outputs(node: "ir.Node") -> "Sequence[ir.Value]":
    """Return the outputs of a movement that are elements of its input, not indices of maxima."""
    return node.outputs[:1] if node.op_type == "MaxPool" else node.outputs


def _moved_inputs(node: "ir.Node") -> "Sequence[ir.Value | None]":
    """Return the inputs whose elements `node` moves to its outputs; none if it computes."""
    if node.op_type == "Concat" and not node.domain:
        return node.inputs
    return node.inputs[:1] if is_movement(node) else ()


def _on_one_grid(quantizers: "Sequence[ir.Node | None]") -> "ir.Node | None":
    """Return one of `quantizers` if all share one grid with a single scale."""
    found = [one for one in quantizers if one is not None]
    grids = [grid_of(one) for one in found]
    if not found or len(found) < len(quantizers):
        return None
    if any(not one.equals(grids[0]) for one in grids):
        return None
    return found[0] if grids[0].axis is None else None


def fits_all_readers(movement: "ir.Node", grid: Grid) -> bool:
    """Return whether all readers of `movement`, past other movements, quantize on `grid`."""
    return not any(value.is_graph_output() for value in movement.outputs) and all(
        grid_of(reader).equals(grid)
        if is_fake_quantize(reader)
        else is_movement(reader) and fits_all_readers(reader, grid)
        for value in movement.outputs
        for reader in consumers(value)
    )

"""Remove clamps that quantizers imply, and insert clamps that keep two quantizers apart."""

from collections.abc import Mapping
from types import MappingProxyType
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
    put_before,
    sole_consumer,
)
from nncfx.export.ir.layer_inputs import CONTRACTIONS

if TYPE_CHECKING:
    import onnx_ir as ir

_KERNELS: Final = frozenset({*CONTRACTIONS, "Add"})
"""Operators that a runtime computes in integers only if a quantizer follows directly."""
_NEUTRAL: Final[Mapping[str, float]] = MappingProxyType({"Add": 0, "Sub": 0, "Mul": 1, "Div": 1})
"""The second operand of each operator that changes nothing."""


def remove_implied_clamps(graph: "ir.Graph") -> None:
    """Remove each ReLU and Clip whose readers are quantizers that clamp at least as much."""
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


def remove_identities(graph: "ir.Graph") -> None:
    """Remove each sum with zero and product with one, such as an untrained scale.

    ONNX Runtime also does this on loading (`NoopElimination`), but after `keep_quantizers_apart`.
    """
    for node in list(graph):
        same = _returned_operand(node)
        if same is not None and not node.outputs[0].is_graph_output():
            node.outputs[0].replace_all_uses_with(same)
            graph.remove(node, safe=True)


def _returned_operand(node: "ir.Node") -> "ir.Value | None":
    """Return the operand that a sum or product returns unchanged; None if there is none."""
    if node.domain or node.op_type not in _NEUTRAL:
        return None
    first, second = (input_of(node, index) for index in (0, 1))
    pairs = [(first, second)] + [(second, first)] * (node.op_type in ("Add", "Mul"))
    for value, other in pairs:
        constant = constant_of(other)
        is_neutral = constant is not None and bool(np.all(constant == _NEUTRAL[node.op_type]))
        # the neutral operand could broadcast the value
        if is_neutral and value.shape is not None and value.shape == node.outputs[0].shape:
            return value
    return None


def clamp_by_quantizers(graph: "ir.Graph") -> None:
    """Move the clamp of a product or sum into its quantizers, which then clamp integers.

    The result is the same, because rounding keeps the order. ONNX Runtime computes the product in
    float if a clamp before the quantizer is narrower than the grid, such as a ReLU whose result is
    concatenated with negative numbers, or a ReLU6 with a learned range.
    """
    for node in list(graph):
        bounds = _clamp_bounds(node)
        source = node.inputs[0] if node.inputs else None
        before = None if source is None else source.producer()
        if bounds is None or source is None or before is None or before.op_type not in _KERNELS:
            continue
        output = node.outputs[0]
        readers = consumers(output)
        are_fit = all(is_fake_quantize(one) and grid_of(one).axis is None for one in readers)
        if output.is_graph_output() or not readers or not are_fit or sole_consumer(source) is None:
            continue
        for reader in readers:
            _narrow(reader, bounds)
        output.replace_all_uses_with(source)
        graph.remove(node, safe=True)


def _narrow(quantizer: "ir.Node", bounds: tuple[float, float]) -> None:
    """Restrict the integers of `quantizer` to those between `bounds`."""
    import onnx_ir as ir

    grid = grid_of(quantizer)
    low, high = np.clip(_steps(grid, bounds), grid.low, grid.high).astype(int).tolist()
    for name, value in (("quant_min", low), ("quant_max", high)):
        quantizer.attributes[name] = ir.AttrInt64(name, value)


def _clamp_bounds(node: "ir.Node") -> tuple[float, float] | None:
    """Return the least and the largest output; None if `node` is not a clamp to constants."""
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
    """Return whether a clamp to `bounds` before rounding to `grid` changes nothing."""
    steps = _steps(grid, bounds)
    return grid.axis is None and bool(steps[0] <= grid.low and grid.high <= steps[1])


def _steps(grid: Grid, bounds: tuple[float, float]) -> npt.NDArray[np.float64]:
    steps: npt.NDArray[np.float64] = np.rint(np.asarray(bounds) / np.min(grid.scale))
    return steps + np.min(grid.zero_point)


def keep_quantizers_apart(graph: "ir.Graph") -> None:
    """Insert a clamp between two consecutive quantizers on different grids.

    It clamps to the second grid, which changes nothing. Without it, ONNX Runtime would merge the
    two pairs into one on a third grid (`DoubleQDQPairsRemover`), with values that differ from the
    simulation. ONNX Runtime removes the clamp later.
    """
    for node in [one for one in graph if is_fake_quantize(one)]:
        source = input_of(node)
        before = source.producer()
        if before is None or not is_fake_quantize(before) or sole_consumer(source) is not node:
            continue
        grid = grid_of(node)
        if grid.axis is not None or grid_of(before).equals(grid):
            continue
        put_before(node, 0, _clamped_to(grid, source, graph), graph)


def _clamped_to(grid: Grid, source: "ir.Value", graph: "ir.Graph") -> "ir.Node":
    """Return a Clip of `source` to the ends of `grid`; it is not in the graph yet."""
    bounds = [
        add_constant(
            graph, f"{source.name}_{end}", np.float32(steps - grid.zero_point) * grid.scale
        )
        for end, steps in (("least", grid.low), ("most", grid.high))
    ]
    return new_node("Clip", [source, *bounds], source.producer(), like=source)

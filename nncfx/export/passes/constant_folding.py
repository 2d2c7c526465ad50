"""Compute constant subgraphs at export, such as the product of a weight and its mask."""

import math
import sys
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.fake_quantize import grid_of, is_fake_quantize
from nncfx.export.ir.graph_edits import add_constant, constant_of, input_of, node_like, nodes_of
from nncfx.export.ir.grid_propagation import is_quantized
from nncfx.export.ir.layer_inputs import CONTRACTIONS

if TYPE_CHECKING:
    import onnx_ir as ir

_REPEATS: Final = frozenset({"Expand", "Tile"})
_LARGEST: Final = 2**22
"""Number of values; larger products are not folded, because they would enlarge the file."""


def store_constant_values(model: "ir.Model") -> None:
    """Replace constant subgraphs that quantizers read by their values.

    These are the computations of quantized weights, which torch's exporter leaves to the runtime
    if they are large, and products of constants that are quantized afterwards, such as relative
    positions times their projection, rounded as in the simulation. A runtime would recompute them
    in every run, because none folds constants after quantizers, and OpenVINO 2026.4 refuses some
    such files.
    """
    from onnxscript.optimizer import fold_constants

    graph = model.graph
    _part_constants(graph)
    known = constant_nodes(graph)
    products = _with_copies(_small_products(known), graph)
    quantizers = [node for node in graph if is_fake_quantize(node)]
    read_by_quantizers = _with_producers(quantizers, known.difference(quantizers))
    computed = (products | read_by_quantizers).difference(quantizers)
    inside = [node for node in quantizers if node in products]
    while computed:
        fold_constants(
            model,
            onnx_shape_inference=False,
            input_size_limit=0,
            output_size_limit=sys.maxsize,
            should_fold=computed.__contains__,
        )
        has_parted = _part_constants(graph)
        ready = [node for node in inside if constant_of(node.inputs[0]) is not None]
        if not (ready or has_parted):
            return
        for node in ready:
            _dequantize(node, products, graph)
            inside.remove(node)


def _part_constants(graph: "ir.Graph") -> bool:
    """Replace each `Split` of a constant by its parts; return whether there was one.

    Attention, for example, splits a constant into three weights. onnxscript only folds nodes with
    one output, so the parts would stay in float.
    """
    parted = False
    for node in nodes_of(graph, "Split"):
        values = constant_of(node.inputs[0])
        ends = None if values is None else _ends(node, values)
        if values is None or ends is None:
            continue
        parts = np.split(values, ends[:-1], node.attributes.get_int("axis", 0))
        for output, part in zip(node.outputs, parts, strict=True):
            constant = add_constant(graph, str(output.name), part)
            output.replace_all_uses_with(constant, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        parted = True
    return parted


def _ends(node: "ir.Node", values: npt.NDArray[Any]) -> npt.NDArray[np.int64] | None:
    """Return the ends of the parts of `values` in a `Split`; None if they depend on an input."""
    if len(node.inputs) > 1:
        sizes = constant_of(node.inputs[1])
        return None if sizes is None else np.cumsum(sizes)
    length, count = values.shape[node.attributes.get_int("axis", 0)], len(node.outputs)
    ends: npt.NDArray[np.int64] = np.arange(1, count + 1) * -(-length // count)
    return ends.clip(max=length)


def constant_nodes(graph: "ir.Graph") -> "set[ir.Node]":
    """Return the nodes of the sorted `graph` that depend on no input, including quantizers."""
    found: set[ir.Node] = set()
    for node in graph:
        values = [value for value in node.inputs if value is not None]
        is_known = all(
            constant_of(value) is not None or value.producer() in found for value in values
        )
        if values and is_known and not node.op_type.startswith("Random"):
            found.add(node)
    return found


def _small_products(known: "AbstractSet[ir.Node]") -> "set[ir.Node]":
    """Return small products of constants, and all nodes from which they are computed."""
    # a product that is not quantized afterwards would be stored in float instead of bytes
    quantized = _with_producers(filter(is_fake_quantize, known), known)
    repeated = _with_producers(filter(_is_repeated, known), known)
    products = [node for node in quantized - repeated if node.op_type in CONTRACTIONS]
    return _with_producers([node for node in products if _is_small(node.outputs[0])], known)


def _with_copies(products: "set[ir.Node]", graph: "ir.Graph") -> "set[ir.Node]":
    """Return `products`, but with copies of nodes that also move quantized values for others.

    Other readers, such as concatenations with computed values, keep the originals and still read
    values that come from a quantizer.
    """
    found = set(products)
    for node in reversed(list(graph)):
        if node not in found or is_fake_quantize(node) or not is_quantized(node.outputs[0]):
            continue
        inside = [use for use in node.outputs[0].uses() if use.node in found]
        if not inside or len(inside) == len(node.outputs[0].uses()):
            continue
        copy = node_like(node, node.inputs)
        graph.insert_before(node, copy)
        for use in inside:
            use.node.replace_input_with(use.idx, copy.outputs[0])
        found.remove(node)
        found.add(copy)
    return found


def _is_repeated(node: "ir.Node") -> bool:
    """Return whether the output is repeated as often as an input says.

    ONNX Runtime finds the integers after such a node only if there is a quantizer.
    """
    return any(use.node.op_type in _REPEATS for one in node.outputs for use in one.uses())


def _is_small(value: "ir.Value") -> bool:
    sizes = None if value.shape is None else value.shape.dims
    if sizes is None or not all(isinstance(size, int) for size in sizes):
        return False
    return math.prod(int(str(size)) for size in sizes) <= _LARGEST


def _with_producers(nodes: "Iterable[ir.Node]", among: "AbstractSet[ir.Node]") -> "set[ir.Node]":
    """Return `nodes` and the nodes of `among` from which they are computed within `among`."""
    found = set(nodes)
    left = list(found)
    while left:
        for value in left.pop().inputs:
            producer = None if value is None else value.producer()
            if producer is not None and producer in among and producer not in found:
                found.add(producer)
                left.append(producer)
    return found


def _dequantize(node: "ir.Node", products: "AbstractSet[ir.Node]", graph: "ir.Graph") -> None:
    """Replace the fake-quantize `node` by a constant with its values where `products` read it."""
    values = constant_of(input_of(node))
    assert values is not None  # noqa: S101 (the caller checks)
    grid = grid_of(node)
    scale, zero_point = grid.along(values.ndim)
    steps = grid.integers(values) - zero_point
    name = f"{input_of(node).name}_rounded"
    constant = add_constant(graph, name, (steps * scale).astype(np.float32))
    for use in list(node.outputs[0].uses()):
        if use.node in products:
            use.node.replace_input_with(use.idx, constant)

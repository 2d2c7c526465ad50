"""Compute while exporting what no input changes, such as the product of a weight and its mask."""

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
"""Values; a larger product stays one, since the file would grow by it."""


def store_constant_values(model: "ir.Model") -> None:
    """Put values in the place of what constants make, where quantizers read it.

    That is what a quantized weight is computed from, which torch's exporter leaves to the runtime
    where it is large; and a product of constants that is quantized afterwards, such as relative
    positions times their projection, rounded as in the simulation. A runtime would compute it
    again in every run: behind quantizers none folds constants, and OpenVINO 2026.4 refuses some
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
    """Put the parts of a constant, as attention has its three weights, in the place of `Split`.

    onnxscript folds what has one output only, so that parts would stay in float. Return whether
    there was one.
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
    """Return where the parts of `values` end in a `Split`; None where an input says it."""
    if len(node.inputs) > 1:
        sizes = constant_of(node.inputs[1])
        return None if sizes is None else np.cumsum(sizes)
    length, count = values.shape[node.attributes.get_int("axis", 0)], len(node.outputs)
    ends: npt.NDArray[np.int64] = np.arange(1, count + 1) * -(-length // count)
    return ends.clip(max=length)


def constant_nodes(graph: "ir.Graph") -> "set[ir.Node]":
    """Return the nodes of the sorted `graph` that no input changes, quantizers among them."""
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
    """Return the products of constants, not too large, and all that they are computed from."""
    # what is not quantized afterwards would be stored in float, in the place of bytes
    quantized = _with_producers(filter(is_fake_quantize, known), known)
    repeated = _with_producers(filter(_is_repeated, known), known)
    products = [node for node in quantized - repeated if node.op_type in CONTRACTIONS]
    return _with_producers([node for node in products if _is_small(node.outputs[0])], known)


def _with_copies(products: "set[ir.Node]", graph: "ir.Graph") -> "set[ir.Node]":
    """Return `products`, with a copy of each node that moves quantized values for others, too.

    What joins these with values of the graph's own finds them behind their quantizer.
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
    """Return whether an input says how often the output is repeated.

    Integers behind such a node are found by ONNX Runtime only if a quantization stands there.
    """
    return any(use.node.op_type in _REPEATS for one in node.outputs for use in one.uses())


def _is_small(value: "ir.Value") -> bool:
    sizes = None if value.shape is None else value.shape.dims
    if sizes is None or not all(isinstance(size, int) for size in sizes):
        return False
    return math.prod(int(str(size)) for size in sizes) <= _LARGEST


def _with_producers(nodes: "Iterable[ir.Node]", among: "AbstractSet[ir.Node]") -> "set[ir.Node]":
    """Return `nodes` and those of `among` from which they are computed through others of these."""
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
    """Let those of `products` that read the fake-quantize `node` read its values as a constant."""
    values = constant_of(input_of(node))
    assert values is not None  # noqa: S101 (the caller asks)
    grid = grid_of(node)
    scale, zero_point = grid.along(values.ndim)
    steps = grid.integers(values) - zero_point
    name = f"{input_of(node).name}_rounded"
    constant = add_constant(graph, name, (steps * scale).astype(np.float32))
    for use in list(node.outputs[0].uses()):
        if use.node in products:
            use.node.replace_input_with(use.idx, constant)

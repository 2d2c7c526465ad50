"""Give short names to values between nodes, scales and zero points."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from nncfx.export.ir.base62 import to_base62

if TYPE_CHECKING:
    import onnx_ir as ir

_CONVERSIONS: Final = frozenset({"QuantizeLinear", "DequantizeLinear"})
_OF_CONSTANTS: Final = frozenset({"Cast", "Mul"})
"""4-bit integers are cast, the scales of a bias are multiplied."""
_SUFFIXES: Final = ("_packed", "_rounded", "_integers")
"""Suffixes of constants that passes derive from a weight, outermost first.

They are dropped if the file does not hold the weight itself.
"""


def is_number_format(node: "ir.Node") -> bool:
    """Return whether `node` only changes the number format.

    It is a quantizer, or computes a constant that a quantizer reads.
    """
    if node.domain or node.op_type not in _CONVERSIONS | _OF_CONSTANTS:
        return False
    return node.op_type in _CONVERSIONS or all(
        one is None or one.is_initializer() for one in node.inputs
    )


def shorten_names(graph: "ir.Graph") -> None:
    """Number values between nodes and constants of quantizers in base 62.

    Inputs and outputs keep their names; so do constants, except scales, zero points and integer
    biases. The integers of a weight take over its name. Nodes that only change the number format
    (`is_number_format`) are named like their output.
    """
    nodes = list(graph.all_nodes())
    _name_weights(graph)
    numbered = [one for one in graph.initializers.values() if _is_of_quantizers(one)]
    named = {id(one) for one in (*graph.outputs, *graph.inputs)}
    computed = [one for node in nodes for one in node.outputs if id(one) not in named]
    changed = {id(one) for one in (*numbered, *computed)}
    taken = {str(node.name) for node in nodes}
    taken |= {str(one.name) for one in _values(graph) if id(one) not in changed}
    names = (one for one in map(to_base62, itertools.count()) if one not in taken)
    for value in (*computed, *numbered):
        value.name = next(names)
    for node in nodes:
        if is_number_format(node):
            node.name = node.outputs[0].name


def _name_weights(graph: "ir.Graph") -> None:
    for value in list(graph.initializers.values()):
        name = str(value.name)
        for suffix in _SUFFIXES:
            name = name.removesuffix(suffix)
        if name not in graph.initializers:
            value.name = name


def _is_of_quantizers(value: "ir.Value") -> bool:
    """Return whether `value` is a scale, a zero point, or an integer bias."""
    import onnx_ir as ir

    uses = value.uses()
    is_bias = value.dtype == ir.DataType.INT32
    return bool(uses) and all(
        is_number_format(one.node) and (one.idx > 0 or is_bias or one.node.op_type == "Mul")
        for one in uses
    )


def _values(graph: "ir.Graph") -> "Iterator[ir.Value]":
    """Yield all values of a graph and of its subgraphs."""
    yield from (*graph.inputs, *graph.outputs, *graph.initializers.values())
    for one in graph.subgraphs():
        yield from (*one.inputs, *one.outputs, *one.initializers.values())
    for node in graph.all_nodes():
        yield from node.outputs

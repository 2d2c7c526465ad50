"""Properties of a graph that export passes ensure, as functions that find violations."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from nncfx.export.ir.fake_quantize import is_fake_quantize
from nncfx.export.ir.graph_edits import constant_of, input_of

if TYPE_CHECKING:
    import onnx_ir as ir


def _narrow_values(graph: "ir.Graph") -> list[str]:
    import onnx_ir as ir

    narrow = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
    values = [one for node in graph.all_nodes() for one in (*node.inputs, *node.outputs)]
    return [str(one.name) for one in values if one is not None and one.dtype in narrow]


def _computed_constants(graph: "ir.Graph") -> list[str]:
    quantized = [input_of(node) for node in graph if is_fake_quantize(node)]
    return [
        str(one.name)
        for one in quantized
        if constant_of(one) is None and not one.is_graph_input() and not _reads_input(one)
    ]


def _reads_input(value: "ir.Value") -> bool:
    waiting, seen = [value], {value}
    while waiting:
        node = waiting.pop().producer()
        for one in () if node is None else node.inputs:
            if one is not None and one not in seen:
                if one.is_graph_input():
                    return True
                seen.add(one)
                waiting.append(one)
    return False


def _fake_quantizers(graph: "ir.Graph") -> list[str]:
    return [str(node.name) for node in graph.all_nodes() if is_fake_quantize(node)]


def _unused_nodes(graph: "ir.Graph") -> list[str]:
    return [
        str(node.name)
        for node in graph
        if not any(one.uses() or one.is_graph_output() for one in node.outputs)
    ]


GRAPH_PROPERTIES: Final[Mapping[str, Callable[["ir.Graph"], list[str]]]] = MappingProxyType(
    {
        "quantized in float32": _narrow_values,
        "constants stored": _computed_constants,
        "no fake quantizers": _fake_quantizers,
        "no unused nodes": _unused_nodes,
    }
)
"""Maps each property to a function that returns the names of the violations in a graph."""

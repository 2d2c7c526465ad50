"""Chooses which nodes and edges are quantized, from the hardware description alone."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from nncfx.graph import Operation
from nncfx.hago.graph.quant_graph import Node, QuantGraph
from nncfx.hago.rules.scale_rules import infer_scale
from nncfx.operators import CONTRACTIONS, MOVEMENTS, operator_of
from nncfx.targets import Hardware

Override: TypeAlias = Callable[[Node], bool | None]
"""Returns whether a call is quantized, overriding the hardware; None: the hardware decides."""

_PAIR: Final = 2


@dataclass(frozen=True)
class Topology:
    """The nodes and edges that are quantized.

    Attributes:
        node_conds: For every node, whether it computes in integers.
        edge_conds: For every edge, whether it carries integers into its target.
    """

    node_conds: tuple[bool, ...]
    edge_conds: tuple[bool, ...]

    @property
    def quantized_edges(self) -> tuple[int, ...]:
        """The numbers of the edges that have a choice of bits, in order."""
        return tuple(number for number, one in enumerate(self.edge_conds) if one)


def quantize_topology(
    graph: QuantGraph, hardware: Hardware, override: Override | None = None
) -> Topology:
    """Return which nodes and edges of `graph` are quantized on `hardware`.

    Inputs and constants are not quantized. Neither are calls without an integer descriptor, nor
    calls with a float descriptor whose sources are all in float; all other calls are. All edges
    into a call follow the call. A call that only moves data and is not described follows its
    source. A call that reads something other than nodes, such as a tensor that a module keeps as a
    plain attribute, is never quantized, whatever `override` returns, because that input is
    unknown.

    Args:
        graph: The graph to decide on.
        hardware: Its descriptors; their order does not matter here.
        override: Called first; then `default_override` is called in any case.

    Source: `facts` of Hago's topology pass (December 2020), in post-order.
    """
    conds: list[bool] = []
    for number, node in enumerate(graph.nodes):
        forced = None
        if node.is_call:
            forced = override(node) if override is not None else None
            forced = default_override(node) if forced is None else forced
        sources = [conds[graph.edges[one].source] for one in graph.incoming[number]]
        if _reads_unknown(graph, number):
            forced = False
        conds.append(_condition(node, hardware, sources) if forced is None else forced)
    return Topology(tuple(conds), tuple(conds[edge.target] for edge in graph.edges))


def default_override(node: Node) -> bool | None:
    """Return False for a call that no integer kernel computes exactly, else None.

    Such calls are those without rules in nncfx, calls on the model's own integers, sums and
    products with a Python number, contractions whose third input is not a bias of the model, and
    averages over windows of unequal or unknown size.
    """
    operation = node.operation
    assert operation is not None  # noqa: S101 (only called for calls)
    given = [one for one in operation.inputs if one is not None]
    integers = any("float" not in one.dtype for one in (*given, *operation.outputs))
    unfit = {
        "add": len(given) != _PAIR,
        "sub": len(given) != _PAIR,
        "mul": len(given) != _PAIR,
        "avg_pool": not _averages_evenly(operation),
    }
    if node.work in CONTRACTIONS:
        has_bias = operator_of(operation.function).role(_PAIR) == "bias"
        unfit[node.work] = len(given) > _PAIR and not (has_bias and _PAIR in operation.parameters)
    is_ruled = infer_scale.find(operation.function) is not None
    return False if integers or not is_ruled or unfit.get(node.work) else None


def moves_freely(node: Node, hardware: Hardware) -> bool:
    """Return whether the call only moves data, and `hardware` does not describe it."""
    return node.work in MOVEMENTS and not hardware.descriptors(node.work)


def _reads_unknown(graph: QuantGraph, number: int) -> bool:
    """Return whether the node reads a tensor that no node produces."""
    operation = graph.nodes[number].operation
    if operation is None:
        return False
    given = sum(one is not None for one in operation.inputs)
    return given > len(graph.incoming[number]) + (number in graph.biases)


def _condition(node: Node, hardware: Hardware, sources: list[bool]) -> bool:
    if not node.is_call:
        return False
    if moves_freely(node, hardware):
        return any(sources)
    descriptors = hardware.descriptors(node.work)
    if not any(one.is_integer for one in descriptors):
        return False
    return any(sources) or not any(one.is_float for one in descriptors)


def _averages_evenly(operation: Operation) -> bool:
    given = operation.inputs[0]
    if given is None:
        return False
    before, after = given.shape, operation.outputs[0].shape
    if operation.function == "mean":
        return True
    if operation.function.startswith("adaptive"):
        return all(a % b == 0 for a, b in zip(before, after, strict=True))
    window = math.prod(before[2:])
    return window > 1 and math.prod(after[2:]) == 1

"""The bits that each quantized edge can have, and the descriptor for a choice of bits."""

from collections.abc import Sequence
from typing import Final

from nncfx.errors import CompressionError
from nncfx.hago.graph.quant_graph import QuantGraph
from nncfx.hago.rules.scale_rules import keeps_scale
from nncfx.hago.rules.topology import Topology, moves_freely
from nncfx.operators import operator_of
from nncfx.targets import DTYPES, Descriptor, Hardware

MIN_BITS: Final = 4
"""The fewest bits to try."""

_WIDEST: Final = 32
_BYTE: Final = 8

Choices = tuple[tuple[int, ...], ...]
"""For every quantized edge, in order, the bits that it can have: from the most down to 4."""


def choice_space(
    graph: QuantGraph, topology: Topology, hardware: Hardware, min_bits: int = MIN_BITS
) -> Choices:
    """Return the bits that each quantized edge can have, from the most downward.

    The most is the widest integer input of any descriptor of the target, or the widest integer
    output of any descriptor of the source, if that is narrower; inputs, constants and float
    sources set no limit. Weights lose one bit if sums of two products saturate. If the most is
    less than `min_bits`, it is the only choice.

    Source: Hago, `generate_choices` (December 2020).
    """
    return tuple(
        tuple(range(most, min(min_bits, most) - 1, -1))
        for most in (_most_bits(graph, hardware, one) for one in topology.quantized_edges)
    )


def searched_space(graph: QuantGraph, topology: Topology, choices: Choices) -> Choices:
    """Return `choices` with only the most bits where the number of bits has no effect.

    That is the case between integer operations if the target reads its input in any scale.
    """
    reduced = []
    for number, bits in zip(topology.quantized_edges, choices, strict=True):
        edge = graph.edges[number]
        operation = graph.nodes[edge.target].operation
        assert operation is not None  # noqa: S101 (targets of edges are calls)
        is_kept = topology.node_conds[edge.source] and keeps_scale(operation.function)
        reduced.append(bits[:1] if is_kept else bits)
    return tuple(reduced)


def select_descriptors(
    graph: QuantGraph, topology: Topology, hardware: Hardware, bits: Sequence[int]
) -> dict[int, Descriptor]:
    """Return the descriptor that computes each described quantized call.

    It is the first integer descriptor whose inputs are at least as wide as the bits of the edges.

    Raises:
        CompressionError: no descriptor is wide enough.
    """
    given = dict(zip(topology.quantized_edges, bits, strict=True))
    selected = {}
    for number, node, _ in graph.calls():
        if not topology.node_conds[number] or moves_freely(node, hardware):
            continue
        wanted = [(graph.edges[one].port, given[one]) for one in graph.incoming[number]]
        feasible = (
            one
            for one in hardware.descriptors(node.work)
            if one.is_integer and all(DTYPES[one.input(port)] >= few for port, few in wanted)
        )
        found = next(feasible, None)
        if found is None:
            asked = ", ".join(f"{few} bits at input {port}" for port, few in wanted)
            raise CompressionError(
                f"The hardware '{hardware.name}' has no feasible descriptor for '{node.name}' "
                f"with {asked}. Use fewer bits there, or add a descriptor of '{node.work}' that "
                "takes as many."
            )
        selected[number] = found
    return selected


def _most_bits(graph: QuantGraph, hardware: Hardware, number: int) -> int:
    edge = graph.edges[number]
    target, source = graph.nodes[edge.target], graph.nodes[edge.source]
    taken = [DTYPES[one.input(edge.port)] for one in _integers(hardware, target.work)]
    given = [DTYPES[one.output] for one in _integers(hardware, source.work)]
    most = min(max(taken, default=_WIDEST), max(given, default=_WIDEST))
    assert target.operation is not None  # noqa: S101 (targets of edges are calls)
    is_weight = operator_of(target.operation.function).role(edge.port) == "weight"
    return min(most, _BYTE - 1) if is_weight and hardware.saturating_sums else most


def _integers(hardware: Hardware, work: str) -> list[Descriptor]:
    return [one for one in hardware.descriptors(work) if one.is_integer]

"""The cost of a strategy: bits of weights, and a modelled cost of running it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from nncfx.errors import ArgumentError
from nncfx.graph import operation_macs
from nncfx.hago.graph.quant_graph import NodeKind, QuantGraph
from nncfx.hago.strategy.choice_space import Choices, select_descriptors
from nncfx.hago.strategy.strategy import Strategy
from nncfx.targets import DTYPES, Hardware

Cost: TypeAlias = Callable[[Strategy], float]

_FLOAT_BITS: Final = 32


def weight_bytes(graph: QuantGraph, strategy: Strategy) -> float:
    """Return the bytes of all parameters: quantized ones at their bits, others in float32.

    A parameter that several calls read counts once, at the most bits among them. Biases take 32
    bits.
    """
    widest = weight_bits(graph, strategy)
    total = 0
    for name, parameter in graph.model.named_parameters():
        total += parameter.numel() * widest.get(name, _FLOAT_BITS)
    return total / 8


def average_weight_bits(graph: QuantGraph, strategy: Strategy) -> float:
    """Return the mean bits per element of quantized weights; NaN if no weight is quantized."""
    widest = weight_bits(graph, strategy)
    counts = {name: graph.model.get_parameter(name).numel() for name in widest}
    if not counts:
        return math.nan
    return sum(widest[name] * count for name, count in counts.items()) / sum(counts.values())


def running_cost(graph: QuantGraph, hardware: Hardware, strategy: Strategy) -> float:
    """Return the modelled cost of one forward as traced, in the unit of the description.

    The cost of a multiply-accumulate is taken from `hardware.mac_costs` for the widest input dtype
    of the chosen descriptor ("float32" without one), that of a byte read by a described call from
    `hardware.byte_costs` for its dtype.

    Raises:
        ArgumentError: the description has no costs for a dtype that is used.
        CompressionError: no descriptor is wide enough.
    """
    descriptors = select_descriptors(graph, strategy.topology, hardware, strategy.bits)
    total = 0.0
    for number, _, operation in graph.calls():
        chosen = descriptors.get(number)
        inputs = ("float32",) if chosen is None else chosen.inputs
        macs = operation_macs(operation)
        if macs:
            widest = max(inputs, key=lambda one: DTYPES[one])
            total += macs * _cost_of(hardware, "mac_costs", widest)
        if hardware.byte_costs and (chosen is not None or macs):
            for port, info in enumerate(operation.inputs):
                dtype = inputs[min(port, len(inputs) - 1)]
                size = 0 if info is None else info.elements * DTYPES[dtype] / 8
                total += size * _cost_of(hardware, "byte_costs", dtype)
    return total


def budgeted(cost: Cost, limit: float) -> Callable[[Strategy, float], float]:
    """Return a score for a constrained search: the accuracy if `cost` is at most `limit`.

    Beyond the limit the score is minus the relative excess, so a search that starts there is led
    back.
    """

    def score(strategy: Strategy, accuracy: float) -> float:
        excess = cost(strategy) / limit - 1
        return accuracy if excess <= 0 else -excess

    return score


def cost_table(strategy: Strategy, choices: Choices, cost: Cost) -> list[dict[int, float]]:
    """Return how each choice at each edge changes `cost`, with all others at the most bits.

    The sum over edges is the exact cost of a strategy if the costs of edges are independent, like
    the bytes of weights.
    """
    most = tuple(one[0] for one in choices)
    full = cost(replace(strategy, bits=most))
    table = []
    for edge, each in enumerate(choices):
        with_bits = {one: (*most[:edge], one, *most[edge + 1 :]) for one in each}
        table.append(
            {one: cost(replace(strategy, bits=bits)) - full for one, bits in with_bits.items()}
        )
    return table


def weight_bits(graph: QuantGraph, strategy: Strategy) -> dict[str, int]:
    """Return the bits of each quantized parameter by name: the most among all that read it."""
    widest: dict[str, int] = {}
    numbers = strategy.topology.quantized_edges
    for number, bits in zip(numbers, strategy.bits, strict=True):
        source = graph.nodes[graph.edges[number].source]
        if source.kind is NodeKind.CONSTANT:
            widest[source.name] = max(bits, widest.get(source.name, 0))
    return widest


def _cost_of(hardware: Hardware, table: str, dtype: str) -> float:
    costs: Mapping[str, float] = getattr(hardware, table)
    if dtype not in costs:
        raise ArgumentError(
            f"The hardware '{hardware.name}' has no entry for '{dtype}' in its {table}. Describe "
            "what it costs."
        )
    return costs[dtype]

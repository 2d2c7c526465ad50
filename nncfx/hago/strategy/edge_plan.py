"""Converts bits and thresholds to the processing of every tensor: scales, widths, clips."""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from nncfx.errors import CompressionError
from nncfx.graph import Operation
from nncfx.hago.graph.quant_graph import QuantGraph
from nncfx.hago.rules.bounds import largest_sum
from nncfx.hago.rules.fixed_point import FixedPoint, fixed_point
from nncfx.hago.rules.scale_rules import output_scale, rectified_scales
from nncfx.hago.rules.topology import Topology
from nncfx.hago.strategy.choice_space import select_descriptors
from nncfx.hago.strategy.strategy import FEWEST_BITS, MOST_BITS, Strategy
from nncfx.operators import operation_kind, operator_of
from nncfx.targets import DTYPES, Descriptor, Hardware

_NARROW: Final = 8
"""Kernels with outputs of at most this many bits sum in the accumulator and requantize last."""

_WIDEST: Final = 32
_REORDERING: Final = ("pad", "slice", "transpose", "view")


@dataclass(frozen=True, kw_only=True)
class EdgePlan:
    """The processing of a tensor between its producer and an input port of its consumer.

    Attributes:
        in_scale: Scale of arriving integers; None if floats arrive.
        in_bits: Width of the register in which they arrive.
        overflows: Whether they can be too large for it, and are wrapped around.
        out_scale: Scale of the required integers; None if floats are required.
        largest: The clip: integers are limited to plus and minus this.
        factor: From the arriving scale to the required one; None if both are equal, and if floats
            arrive or are required.
    """

    in_scale: Tensor | None = None
    in_bits: int = _WIDEST
    overflows: bool = False
    out_scale: Tensor | None = None
    largest: int = 0
    factor: FixedPoint | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the arriving integers are used unchanged."""
        return self.in_scale is not None and self.out_scale is not None and self.factor is None


@dataclass(frozen=True)
class BiasPlan:
    """How to round a bias: to the scale of the sums it is added to, clipped to their width."""

    scale: Tensor
    largest: int


@dataclass(frozen=True)
class Plan:
    """The processing of every edge of a graph.

    Attributes:
        edges: Edge number to its plan; an edge without an entry carries floats.
        outputs: Call number to how its integers become the floats that the model returns.
        biases: Call number to how its bias is rounded.
        descriptors: Call number to the descriptor that computes it.
        first_scales: Call number to the scale of its first input.
    """

    edges: Mapping[int, EdgePlan]
    outputs: Mapping[int, EdgePlan]
    biases: Mapping[int, BiasPlan]
    descriptors: Mapping[int, Descriptor]
    first_scales: Mapping[int, Tensor]


@dataclass(frozen=True)
class _Integers:
    """The output of a call: integers of `scale`, in `bits`, up to `largest` before wrapping."""

    scale: Tensor
    bits: int
    largest: float

    @property
    def register(self) -> int:
        return (1 << (self.bits - 1)) - 1

    def equals(self, other: "_Integers | None") -> bool:
        return (
            other is not None
            and (self.bits, self.largest) == (other.bits, other.largest)
            and torch.equal(self.scale, other.scale)
        )

    def edge(self) -> EdgePlan:
        return EdgePlan(
            in_scale=self.scale, in_bits=self.bits, overflows=self.largest > self.register
        )


def make_plan(graph: QuantGraph, hardware: Hardware, strategy: Strategy) -> Plan:
    """Return the plan of every edge of `graph` for `strategy`.

    Raises:
        CompressionError: the strategy does not fit the graph, or no descriptor is wide enough.
    """
    return Planner(graph, hardware).plan(strategy)


def has_channel_scales(graph: QuantGraph, number: int) -> bool:
    """Return whether the edge carries a weight that can have a scale per output channel."""
    edge = graph.edges[number]
    operation = graph.nodes[edge.target].operation
    row = operator_of("" if operation is None else operation.function)
    is_weight = row.role(edge.port) == "weight" and row.output_axis == 0
    return is_weight and not graph.nodes[edge.source].is_call


class Planner:
    """Creates plans for one graph and hardware, one after the other.

    For calls that a strategy does not change, the plan reuses the same objects as the previous
    plan. A search changes few edges at a time.
    """

    def __init__(self, graph: QuantGraph, hardware: Hardware) -> None:
        self._graph, self._hardware = graph, hardware
        self._topology: Topology | None = None
        self._forget()

    def plan(self, strategy: Strategy) -> Plan:
        """Return the plan of every edge for `strategy`.

        Raises:
            CompressionError: the strategy does not fit the graph, has bits or thresholds out of
                range, or no descriptor is wide enough.
        """
        graph, topology = self._graph, strategy.topology
        _check(graph, strategy)
        self._descriptors = select_descriptors(graph, topology, self._hardware, strategy.bits)
        if topology != self._topology:
            self._forget()
        self._strategy, self._topology = strategy, topology
        self._bits = dict(zip(topology.quantized_edges, strategy.bits, strict=True))
        for number, _, operation in graph.calls():
            said, arriving = self._said(number)
            known = self._known.get(number)
            if (
                known is not None
                and known[0] == said
                and all(map(operator.is_, known[1], arriving))
            ):
                continue
            self._known.pop(number, None)
            if topology.node_conds[number]:
                self._add_quantized(number, operation)
            else:
                self._add_float(number)
            self._known[number] = said, arriving
        return Plan(
            dict(self._edges),
            dict(self._outputs),
            dict(self._biases),
            self._descriptors,
            dict(self._first_scales),
        )

    def _forget(self) -> None:
        self._known: dict[int, tuple[object, tuple[_Integers | None, ...]]] = {}
        self._produced: dict[int, _Integers] = {}
        self._edges: dict[int, EdgePlan] = {}
        self._outputs: dict[int, EdgePlan] = {}
        self._biases: dict[int, BiasPlan] = {}
        self._first_scales: dict[int, Tensor] = {}

    def _said(self, number: int) -> tuple[object, tuple["_Integers | None", ...]]:
        """Return all that the plan of a call depends on: compared by value, and by identity."""
        incoming = self._graph.incoming[number]
        thresholds = self._strategy.thresholds
        return (
            self._descriptors.get(number),
            tuple(self._bits.get(one) for one in incoming),
            tuple(thresholds[self._graph.edges[one].source] for one in incoming),
        ), tuple(self._arriving(one) for one in incoming)

    def _add_float(self, number: int) -> None:
        for one in self._graph.incoming[number]:
            arriving = self._arriving(one)
            if arriving is not None:
                self._edges[one] = arriving.edge()

    def _add_quantized(self, number: int, operation: Operation) -> None:
        incoming = self._graph.incoming[number]
        given = self._given_scales(operation, incoming, is_described=number in self._descriptors)
        largest = []
        for one, scale in zip(incoming, given, strict=True):
            self._edges[one] = self._edge(one, scale)
            source = self._arriving(one)
            kept = source is not None and self._edges[one].is_kept
            largest.append(source.largest if kept and source else self._edges[one].largest)
        shown = [
            scale[..., 0] if has_channel_scales(self._graph, one) and scale.ndim else scale
            for one, scale in zip(incoming, given, strict=True)
        ]
        self._first_scales[number] = shown[0]
        scale, bits = output_scale(operation, shown), self._register(number)
        bias = 0.0
        if number in self._graph.biases:
            register = (1 << (bits - 1)) - 1
            self._biases[number] = BiasPlan(scale, register)
            values = self._graph.model.get_parameter(self._graph.biases[number]).detach().double()
            steps = values / scale.flatten()
            bias = min(float(steps.abs().max()) + 1, register)
        produced = _Integers(scale, bits, largest_sum(operation, largest) + bias)
        if not produced.equals(self._produced.get(number)):
            self._produced[number], self._outputs[number] = produced, produced.edge()

    def _arriving(self, edge: int) -> _Integers | None:
        return self._produced.get(self._graph.edges[edge].source)

    def _register(self, number: int) -> int:
        """Return the width of the call's output: that of its input if values do not change."""
        kept = [one for one in self._graph.incoming[number] if self._edges[one].is_kept]
        if kept:
            return self._edges[kept[0]].in_bits
        descriptor = self._descriptors.get(number)
        if descriptor is None:
            return _WIDEST
        bits = DTYPES[descriptor.output]
        return bits if bits > _NARROW else self._hardware.accumulator_bits

    def _given_scales(
        self, operation: Operation, incoming: Sequence[int], *, is_described: bool
    ) -> list[Tensor]:
        asked = [self._asked_scale(one) for one in incoming]
        sources = [self._arriving(one) for one in incoming]
        arriving = [
            scale if source is None else source.scale
            for scale, source in zip(asked, sources, strict=True)
        ]
        given = rectified_scales(operation.function, arriving, asked)
        if operation_kind(operation.function) in _REORDERING and (given[0].ndim or is_described):
            # a scale per channel does not survive a reordering of channels, and a sum does not fit
            # into the dtypes that the hardware moves
            return asked
        return given

    def _edge(self, number: int, scale: Tensor) -> EdgePlan:
        bits = self._bits[number]
        largest = (1 << (bits - 1)) - 1
        arriving = self._arriving(number)
        if arriving is None:
            return EdgePlan(out_scale=scale, largest=largest)
        same = scale is arriving.scale
        return EdgePlan(
            in_scale=arriving.scale,
            in_bits=arriving.bits,
            overflows=arriving.largest > arriving.register,
            out_scale=scale,
            largest=arriving.register if same else largest,
            factor=None if same else fixed_point(arriving.scale / scale),
        )

    def _asked_scale(self, number: int) -> Tensor:
        edge = self._graph.edges[number]
        threshold = torch.tensor(
            self._strategy.thresholds[edge.source], dtype=torch.float64, device="cpu"
        )
        if threshold.ndim:
            if has_channel_scales(self._graph, number):
                operation = self._graph.nodes[edge.target].operation
                assert operation is not None  # noqa: S101 (targets of edges are calls)
                weight = operation.inputs[1]
                assert weight is not None  # noqa: S101 (the edge carries it)
                threshold = threshold.view(-1, *[1] * (len(weight.shape) - 1))
            else:
                threshold = threshold.amax()
        scale = threshold / (1 << (self._bits[number] - 1))
        if self._hardware.power_of_two_scales:
            mantissa, exponent = torch.frexp(scale)
            scale = torch.ldexp(torch.ones_like(scale), exponent - (mantissa == 1 / 2).int())
        return scale


def _check(graph: QuantGraph, strategy: Strategy) -> None:
    """Refuse a strategy that is malformed, or does not fit this graph."""
    for place, bits in enumerate(strategy.bits):
        if bits not in range(FEWEST_BITS, MOST_BITS + 1):
            raise CompressionError(
                f"The strategy has {bits!r} bits at place {place}, and integers have "
                f"{FEWEST_BITS} to {MOST_BITS}. Use the strategy that the search returned."
            )
    for number, threshold in enumerate(strategy.thresholds):
        values = threshold if isinstance(threshold, tuple) else (threshold,)
        if not all(0 < one < math.inf for one in values):
            raise CompressionError(
                f"The strategy has the threshold {threshold!r} at node {number}; it is the "
                "largest magnitude represented, positive and finite. Use the strategy that the "
                "search returned."
            )
    topology = strategy.topology
    counts = (
        ("node_conds", len(topology.node_conds), len(graph.nodes), "nodes"),
        ("edge_conds", len(topology.edge_conds), len(graph.edges), "edges"),
        ("thresholds", len(strategy.thresholds), len(graph.nodes), "nodes"),
        ("bits", len(strategy.bits), sum(topology.edge_conds), "quantized edges"),
    )
    for name, found, wanted, what in counts:
        if found != wanted:
            raise CompressionError(
                f"The strategy has {found} {name}, and the graph has {wanted} {what}: it belongs "
                "to another model or was written by hand. Use the strategy that the search "
                "returned."
            )

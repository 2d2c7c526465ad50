"""Thresholds of all nodes, from statistics that are collected once."""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

from nncfx.errors import ArgumentError, CompressionError, require_known
from nncfx.graph import input_address
from nncfx.hago.graph.quant_graph import NodeKind, QuantGraph
from nncfx.hago.strategy.edge_plan import has_channel_scales
from nncfx.hago.strategy.strategy import Threshold
from nncfx.narration import tracked
from nncfx.quantization import QuantizerSpec, RangeRequest
from nncfx.quantization.ranges.range_estimation import range_from, statistic_for
from nncfx.quantization.ranges.statistics import Histogram, TensorStatistic
from nncfx.targets import Hardware
from nncfx.tracing import ExampleInputs, TracedCall, trace
from nncfx.tracing.calls.tensors import tensors_in

_BYTES: Final = QuantizerSpec()
_ROUNDED: Final = "power2_range"

THRESHOLD_METHODS: Final[Mapping[str, RangeRequest]] = MappingProxyType(
    {
        "avg_range": RangeRequest(method="mean_min_max"),
        "kl_estimate": RangeRequest(method="kl"),
        "max_range": RangeRequest(method="min_max"),
        _ROUNDED: RangeRequest(method="min_max"),
        "quantile_range": RangeRequest(method="percentile", low=0.0, high=99.99),
    }
)
"""Hago's estimates by name, as ranges whose larger end is the threshold.

Means are taken over batches. "power2_range" is rounded up to a power of two, and "quantile_range"
is the upper end alone, if it is positive.
"""


def estimate_thresholds(
    graph: QuantGraph,
    hardware: Hardware,
    batches: Iterable[ExampleInputs],
    method: str = "avg_range",
) -> tuple[Threshold, ...]:
    """Return the threshold of every node of `graph`, from a few hundred samples in `batches`.

    For a parameter it is the largest magnitude, per output channel if it is only used as a weight
    of convolutions and linear layers and the hardware has scales per channel. Nodes that do not
    output floats have 1. `method`, a name in `THRESHOLD_METHODS`, applies to inputs and results of
    operations; with "power2_range" weights are rounded up to powers of two as well.

    Raises:
        ArgumentError: the method is unknown, or there is no batch.
        CompressionError: an operation outputs NaN or infinity.
    """
    require_known("threshold method", method, THRESHOLD_METHODS)
    ranges = _Ranges(THRESHOLD_METHODS[method])
    for batch in tracked(batches, "Ranges"):
        trace(graph.model, batch, [ranges])
        ranges.next_batch()
    if not ranges.found:
        raise ArgumentError(
            "There are no calibration batches, so nothing says how large activations become. "
            "Give about 128 samples of the data that the model will see."
        )
    thresholds: list[Threshold] = []
    for number in tracked(range(len(graph.nodes)), "Thresholds"):
        node = graph.nodes[number]
        if node.kind is NodeKind.CONSTANT:
            thresholds.append(_of_constant(graph, hardware, number, rounded=method == _ROUNDED))
        else:
            statistic = ranges.found.get(node.name)
            value = 0.0 if statistic is None else _threshold(statistic, method)
            thresholds.append(_rounded(value, rounded=method == _ROUNDED))
    return tuple(thresholds)


class _Ranges:
    """Follows a forward and collects the outputs of each node, a batch as one example."""

    def __init__(self, request: RangeRequest) -> None:
        self.found: dict[str, TensorStatistic] = {}
        self._request = request
        self._inputs = 0

    def next_batch(self) -> None:
        self._inputs = 0

    def on_input(self, tensor: Tensor) -> None:
        self._see(input_address(self._inputs), [tensor])
        self._inputs += 1

    def on_call(self, call: TracedCall) -> None:
        if call.operation is not None:
            self._see(call.operation.address, tensors_in(call.result))

    def on_output(self, tensor: Tensor) -> None:
        """Ignore an output: it is the output of a node."""

    def _see(self, name: str, tensors: Sequence[Tensor]) -> None:
        floats = [one.flatten() for one in tensors if one.is_floating_point() and one.numel()]
        if not floats:
            return
        statistic = self.found.setdefault(name, statistic_for(self._request))
        together = torch.cat(floats)
        # a histogram would subsample one example with many numbers
        statistic.update(together if isinstance(statistic, Histogram) else together[None])
        if statistic.has_nan:
            raise CompressionError(
                f"'{name}' returns values from {float(statistic.low)} to {float(statistic.high)} "
                "on the calibration data; what is not finite has no threshold. Give data on "
                "which the model works, or leave the operation that gives them in float."
            )


def _threshold(statistic: TensorStatistic, method: str) -> float:
    """Return the larger end of a range in magnitude."""
    low, high = (float(one) for one in range_from(statistic, THRESHOLD_METHODS[method], _BYTES))
    if method == "quantile_range":
        return high if high > 0 else max(-float(statistic.low), float(statistic.high))
    return max(-low, high)


def _of_constant(
    graph: QuantGraph, hardware: Hardware, number: int, *, rounded: bool
) -> Threshold:
    stored: Tensor = operator.attrgetter(graph.nodes[number].name)(graph.model)
    magnitudes = stored.detach().abs()
    if not magnitudes.is_floating_point() or not magnitudes.numel():
        return 1.0
    if not bool(magnitudes.isfinite().all()):
        raise CompressionError(
            f"The parameter '{graph.nodes[number].name}' holds NaN or infinity, and cannot be "
            "quantized. Fix the weights."
        )
    read = [one for one, edge in enumerate(graph.edges) if edge.source == number]
    by_channel = hardware.per_channel_weights and all(
        has_channel_scales(graph, one) for one in read
    )
    if not by_channel:
        return _rounded(float(magnitudes.amax()), rounded=rounded)
    largest = magnitudes.flatten(1).amax(1).tolist()
    return tuple(_rounded(one, rounded=rounded) for one in largest)


def _rounded(value: float, *, rounded: bool) -> float:
    """Return `value`, or the least power of two that is not below it; 1 for 0."""
    mantissa, exponent = math.frexp(value or 1.0)
    # the mantissa of a power of two is 1/2
    return math.ldexp(1.0, exponent - (mantissa == 1 / 2)) if rounded else value or 1.0

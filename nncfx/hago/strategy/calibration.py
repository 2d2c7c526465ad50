"""Thresholds of every node, from statistics that are collected once."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from nncfx.errors import ArgumentError, CompressionError, did_you_mean
from nncfx.graph import input_address
from nncfx.hago.graph.quant_graph import NodeKind, QuantGraph
from nncfx.hago.strategy.edge_plan import has_channel_scales
from nncfx.hago.strategy.strategy import Threshold
from nncfx.hago.strategy.thresholds import (
    BINS,
    THRESHOLD_METHODS,
    TensorStatistics,
    max_range,
    next_power_of_two,
)
from nncfx.quantization.ranges.observation import tracked
from nncfx.targets import Hardware
from nncfx.tracing import ExampleInputs, TracedCall, trace
from nncfx.tracing.calls.tensors import tensors_in

__all__ = ["estimate_thresholds"]

_ROUNDED: Final = "power2_range"
_WITH_HISTOGRAM: Final = ("kl_estimate", "quantile_range")


def estimate_thresholds(
    graph: QuantGraph,
    hardware: Hardware,
    batches: Iterable[ExampleInputs],
    method: str = "avg_range",
) -> tuple[Threshold, ...]:
    """Return the threshold of every node of `graph`.

    A parameter's is its largest magnitude, per output channel where it is the weight of
    convolutions and linear layers only and the hardware has scales per channel. A node that puts
    out no floats has 1. Tensors with a histogram are seen twice.

    Args:
        graph: Whose nodes.
        hardware: Whether weights have scales per channel.
        batches: Inputs of the model, a few hundred samples in all.
        method: A name of `THRESHOLD_METHODS`, for inputs and results of operations; with
            "power2_range" weights are rounded up to powers of two as well.

    Raises:
        ArgumentError: there is no such method, or no batch.
        CompressionError: an operation puts out NaN or infinity.
    """
    if method not in THRESHOLD_METHODS:
        raise ArgumentError(
            f"There is no threshold method '{method}'.{did_you_mean(method, THRESHOLD_METHODS)} "
            f"Known are {', '.join(THRESHOLD_METHODS)}.",
        )
    kept = list(batches)
    if not kept:
        raise ArgumentError(
            "There are no calibration batches, so nothing says how large activations become. "
            "Give about 128 samples of the data that the model will see.",
        )
    ranges = _Ranges()
    for batch in tracked(kept, "Ranges"):
        trace(graph.model, batch, [ranges])
        ranges.next_batch()
    if method in _WITH_HISTOGRAM:
        histograms = _Histograms(ranges.found)
        for batch in tracked(kept, "Histograms"):
            trace(graph.model, batch, [histograms])
            histograms.next_batch()
    estimate = THRESHOLD_METHODS[method]
    thresholds: list[Threshold] = []
    for number in tracked(range(len(graph.nodes)), "Thresholds"):
        node = graph.nodes[number]
        if node.kind is NodeKind.CONSTANT:
            thresholds.append(_of_constant(graph, hardware, number, rounded=method == _ROUNDED))
        else:
            statistics = ranges.found.get(node.name)
            thresholds.append(1.0 if statistics is None else estimate(statistics))
    return tuple(thresholds)


class _Ranges:
    """Follows a forward and keeps the ends of what each node puts out."""

    def __init__(self) -> None:
        self.found: dict[str, TensorStatistics] = {}
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
        """Nothing: an output is some node's."""

    def _see(self, name: str, tensors: Sequence[Tensor]) -> None:
        floats = [one for one in tensors if one.is_floating_point() and one.numel()]
        if floats:
            self._add(name, floats)

    def _add(self, name: str, tensors: Sequence[Tensor]) -> None:
        ends = [torch.aminmax(one.detach()) for one in tensors]
        low = min(float(one.min) for one in ends)
        high = max(float(one.max) for one in ends)
        if not np.isfinite([low, high]).all():
            raise CompressionError(
                f"'{name}' puts out values from {low} to {high} on the calibration data; what is "
                "not finite has no threshold. Give data on which the model works, or leave the "
                "operation that gives them in float.",
            )
        statistics = self.found.setdefault(name, TensorStatistics())
        statistics.minima.append(low)
        statistics.maxima.append(high)


class _Histograms(_Ranges):
    """Follows a forward and counts what each node puts out, over the range found before."""

    def __init__(self, found: dict[str, TensorStatistics]) -> None:
        super().__init__()
        self.found = found

    @override
    def _add(self, name: str, tensors: Sequence[Tensor]) -> None:
        statistics = self.found[name]
        bound = max_range(statistics)
        for one in tensors:
            counts = torch.histc(one.detach().float(), BINS, -bound, bound).double().numpy()
            if not statistics.histogram.size:
                statistics.histogram = np.zeros(BINS)
            statistics.histogram += counts


def _of_constant(
    graph: QuantGraph, hardware: Hardware, number: int, *, rounded: bool
) -> Threshold:
    magnitudes = _stored(graph, graph.nodes[number].name).detach().abs()
    if not magnitudes.is_floating_point() or not magnitudes.numel():
        return 1.0
    if not bool(magnitudes.isfinite().all()):
        raise CompressionError(
            f"The parameter '{graph.nodes[number].name}' holds NaN or infinity, and cannot be "
            "quantized. Mend the weights.",
        )
    read = [one for one, edge in enumerate(graph.edges) if edge.source == number]
    by_channel = hardware.per_channel_weights and all(
        has_channel_scales(graph, one) for one in read
    )
    if not by_channel:
        return _rounded(float(magnitudes.amax()), rounded=rounded)
    largest = magnitudes.flatten(1).amax(1).tolist()
    return tuple(_rounded(one, rounded=rounded) for one in largest)


def _stored(graph: QuantGraph, name: str) -> Tensor:
    module, _, last = name.rpartition(".")
    tensor = getattr(graph.model.get_submodule(module), last)
    assert isinstance(tensor, Tensor)  # noqa: S101 (the graph names parameters and buffers)
    return tensor


def _rounded(value: float, *, rounded: bool) -> float:
    value = value or 1.0
    return next_power_of_two(value) if rounded else value

"""Thresholds of weights that minimise the squared error for their number of bits."""

from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from nncfx.hago.graph.quant_graph import NodeKind, QuantGraph
from nncfx.hago.search.costs import weight_bits
from nncfx.hago.strategy.strategy import Strategy, Threshold
from nncfx.quantization import QuantizerSpec, RangeRequest
from nncfx.quantization.ranges.calibration import weight_range

_MOST_BITS: Final = 16
"""The widest quantizers; wider weights keep their thresholds."""


class FittedWeights:
    """Sets the thresholds of a strategy at which rounding changes the weights of a graph least.

    With fewer bits it pays off to clip the few largest weights of a channel for finer steps in the
    others. A weight keeps the shape of its thresholds: a single one, or one per output channel. A
    weight that several operations read is fitted for the most bits among them. Each weight is
    fitted once per number of bits.

    Source: `nncfx.quantization`'s range method "mse", a search over 100 factors.
    """

    def __init__(self, graph: QuantGraph) -> None:
        self._graph = graph
        self._known: dict[tuple[int, int, bool], Threshold] = {}

    def __call__(self, strategy: Strategy) -> Strategy:
        """Return `strategy` with the thresholds of its weights fitted to its bits."""
        bits = weight_bits(self._graph, strategy)
        thresholds = list(strategy.thresholds)
        for number, node in enumerate(self._graph.nodes):
            few = bits.get(node.name, _MOST_BITS + 1)
            if node.kind is NodeKind.CONSTANT and few <= _MOST_BITS:
                by_channel = isinstance(thresholds[number], tuple)
                thresholds[number] = self._threshold(number, few, by_channel=by_channel)
        return replace(strategy, thresholds=tuple(thresholds))

    def _threshold(self, number: int, bits: int, *, by_channel: bool) -> Threshold:
        key = number, bits, by_channel
        if key not in self._known:
            weight = self._graph.model.get_parameter(self._graph.nodes[number].name).detach()
            self._known[key] = _fitted(weight, bits, by_channel=by_channel)
        return self._known[key]


def _fitted(weight: Tensor, bits: int, *, by_channel: bool) -> Threshold:
    spec = QuantizerSpec(bits=bits, narrow=True, axis=0 if by_channel else None)
    low, high = weight_range(weight, RangeRequest(method="mse"), spec)
    # the threshold is one step beyond the largest integer; all-zero channels can have any
    peak = torch.maximum(-low, high).double() * (1 << (bits - 1)) / ((1 << (bits - 1)) - 1)
    found = torch.where(peak > 0, peak, 1.0)
    return tuple(found.tolist()) if by_channel else float(found)

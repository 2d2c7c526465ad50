"""The sensitivity of each edge to fewer bits, and a greedy search in that order."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional as F
from typing_extensions import override

from nncfx.hago.search.evaluation import Evaluator, LabelledBatches, evaluations
from nncfx.hago.search.rounding_errors import rounding_errors
from nncfx.hago.search.tuners import Bits, Tuner
from nncfx.hago.strategy.choice_space import Choices
from nncfx.narration import tracked
from nncfx.quantization.analysis.bit_allocation import WidthTable
from nncfx.tracing import run
from nncfx.tracing.calls.tensors import tensors_in


@torch.no_grad()
def divergence(model: nn.Module, batches: LabelledBatches) -> float:
    """Return the mean Kullback-Leibler divergence of the model from logits, in nats.

    Args:
        model: Its first output is n x classes.
        batches: Inputs, and instead of labels the logits to compare with.
    """
    total, count = 0.0, 0
    for inputs, logits in batches:
        # float64, because float32 would lose divergences as small as 1e-8
        found = tensors_in(run(model, inputs))[0].double().log_softmax(1)
        expected = logits.double().log_softmax(1)
        total += float(F.kl_div(found, expected, reduction="sum", log_target=True))
        count += len(logits)
    return total / count


def edge_sensitivities(
    evaluator: Evaluator, choices: Choices, processes: int = 1
) -> list[dict[int, float]]:
    """Return the divergence caused by each choice of bits at each edge, alone.

    All other edges carry floats. An edge with one choice is not measured, and has 0.
    """
    most = tuple(one[0] for one in choices)
    asked = [
        (edge, (*most[:edge], bits, *most[edge + 1 :]))
        for edge, each in enumerate(choices)
        for bits in each
        if len(each) > 1
    ]
    with torch.no_grad():
        compared = [
            (inputs, tensors_in(run(evaluator.graph.model, inputs))[0])
            for inputs, _ in evaluator.batches
        ]
    alone = _Alone(replace(evaluator, batches=compared, evaluate=divergence))
    table: list[dict[int, float]] = [{} if len(one) > 1 else {one[0]: 0.0} for one in choices]
    with evaluations(alone, processes) as evaluate:
        found = tracked(evaluate(asked), "Sensitivities")
        for (edge, bits), value in zip(asked, found, strict=True):
            table[edge][bits[edge]] = value
    return table


def smoothed_sensitivities(
    evaluator: Evaluator, choices: Choices, processes: int = 1
) -> list[dict[int, float]]:
    """Return the divergence in nats of each choice of bits at each edge, with less noise.

    To second order the divergence of an edge is the squared error of its values times a curvature
    that does not depend on the bits. Measurements of `edge_sensitivities` on a hundred samples
    deviate from that, since few samples are near the border of two classes. Here each edge has one
    curvature, the geometric mean of divergence over error of its choices, and the divergence of
    each choice is that times its error. An edge with one choice, or with a divergence or error of
    zero everywhere, has 0.
    """
    measured = edge_sensitivities(evaluator, choices, processes)
    return [
        {bits: _curvature(harms, errors) * errors[bits] for bits in each}
        for each, harms, errors in zip(
            choices, measured, rounding_errors(evaluator, choices), strict=True
        )
    ]


def _curvature(harms: Mapping[int, float], errors: Mapping[int, float]) -> float:
    """Return the geometric mean of divergence over error, for choices where both are positive."""
    ratios = [harm / errors[bits] for bits, harm in harms.items() if harm > 0 < errors[bits]]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 0.0


@dataclass
class _Alone:
    """Evaluates candidates with only one edge quantized."""

    evaluator: Evaluator

    def __call__(self, candidate: tuple[int, Bits]) -> float:
        edge, bits = candidate
        model = self.evaluator.simulated(bits)
        model.restrict_to([self.evaluator.strategy.topology.quantized_edges[edge]])
        return self.evaluator.evaluate(model, self.evaluator.batches)


class SensitivityGreedyTuner(Tuner):
    """From the least sensitive edge to the most: the fewest bits that keep the score.

    At every edge the fewest bits are tried first, then more, until the score is within the
    tolerance of the score with the most bits everywhere; with the most bits the edge is unchanged.

    Args:
        choices: The bits of every edge.
        sensitivities: From `edge_sensitivities`; edges are ordered by their largest value.
        tolerance: How far the score may fall in total.
    """

    def __init__(
        self, choices: Choices, sensitivities: WidthTable, tolerance: float = 0.01
    ) -> None:
        super().__init__(choices)
        worst = [max(one.values()) for one in sensitivities]
        edges = sorted(range(len(choices)), key=lambda edge: worst[edge])
        # what remains to be tried, from the end: least sensitive edges first, fewest bits first
        self._left = [(edge, bits) for edge in reversed(edges) for bits in choices[edge][1:]]
        self._accepted = self._most
        self._tolerance = tolerance
        self._floor: float | None = None

    @property
    def accepted(self) -> Bits:
        """The candidate that was accepted last: the fewest bits within the tolerance."""
        return self._accepted

    @override
    def ask(self) -> list[Bits]:
        if self._floor is None:
            return [self._most]
        if not self._left:
            return []
        edge, bits = self._left[-1]
        return [(*self._accepted[:edge], bits, *self._accepted[edge + 1 :])]

    @override
    def _told(self, candidates: Sequence[Bits], scores: Sequence[float]) -> None:
        if self._floor is None:
            self._floor = scores[0] - self._tolerance
            return
        edge, _ = self._left.pop()
        if scores[0] >= self._floor:
            self._accepted = candidates[0]
            while self._left and self._left[-1][0] == edge:
                self._left.pop()

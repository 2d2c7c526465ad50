"""Squared errors of rounding, and sensitivities that follow them."""

import math

import pytest
import torch
from torch import nn

from nncfx import hago
from nncfx.hago.search.evaluation import LabelledBatches
from nncfx.hago.search.rounding_errors import rounding_errors
from nncfx.targets import Hardware


def test_the_errors_of_an_input_and_of_a_weight_by_hand(
    evaluator: hago.Evaluator, space: hago.SearchSpace, dataset: LabelledBatches
) -> None:
    table = rounding_errors(evaluator, space.choices)
    images = torch.cat([one for one, _ in dataset])
    weight = evaluator.graph.model.conv1.weight.detach()
    by_channel = weight.abs().amax((1, 2, 3), keepdim=True)
    for bits in (8, 4):
        for edge, values, threshold, times in (
            (0, images, space.strategy.thresholds[0], 1),
            (1, weight, by_channel, len(dataset)),
        ):
            step, most = threshold / 2 ** (bits - 1), 2 ** (bits - 1) - 1
            rounded = (values / step).round().clamp(-most, most) * step
            expected = times * float((rounded - values).square().sum())
            assert table[edge][bits] == pytest.approx(expected, rel=1e-3)


def test_smoothed_harm_is_measured_harm_spread_as_the_squared_error(
    evaluator: hago.Evaluator, space: hago.SearchSpace
) -> None:
    measured = hago.edge_sensitivities(evaluator, space.choices)
    errors = rounding_errors(evaluator, space.choices)
    smoothed = hago.smoothed_sensitivities(evaluator, space.choices)
    assert [tuple(one) for one in smoothed] == list(space.choices)
    for one, before, error in zip(smoothed, measured, errors, strict=True):
        if len(one) == 1:
            assert set(one.values()) == {0.0}
            continue
        # one factor for all bits ...
        assert len({round(math.log(one[bits] / error[bits]), 9) for bits in one}) == 1
        # ... that leaves the mean order of magnitude as it was measured
        assert sum(map(math.log, one.values())) == pytest.approx(
            sum(map(math.log, before.values()))
        )


def test_a_weight_that_every_choice_keeps_has_no_harm(vnni: Hardware) -> None:
    """Weights of one step are on every grid."""
    model = nn.Sequential(nn.Linear(4, 3, bias=False)).eval()
    nn.init.zeros_(model[0].weight)
    inputs = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    batches = [(inputs, torch.zeros(16))]
    graph = hago.prepare_graph(model, inputs[:1])
    space = hago.search_space(graph, vnni, batches, hago.QuantizeSettings())
    evaluator = hago.Evaluator(graph, vnni, space.strategy, batches, hago.top1_accuracy)
    table = hago.smoothed_sensitivities(evaluator, space.choices)
    assert set(table[1].values()) == {0.0}

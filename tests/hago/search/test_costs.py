"""Bits by integer program, sensitivities, budgets."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from nncfx import hago
from nncfx.errors import ArgumentError
from nncfx.hago.search.costs import (
    average_weight_bits,
    budgeted,
    cost_table,
    running_cost,
    weight_bytes,
)
from nncfx.hago.search.evaluation import LabelledBatches
from nncfx.hago.search.search import SearchSpace, search_space
from nncfx.hago.search.sensitivity import SensitivityGreedyTuner, divergence, edge_sensitivities
from nncfx.targets import Hardware


def test_bytes_of_weights_by_hand(graph: hago.QuantGraph, space: SearchSpace) -> None:
    # weights 3*8*9 + 8*8*9 + 8*4 at 8 bits, biases 8 + 8 + 4 at 32
    assert weight_bytes(graph, space.strategy) == 216 + 576 + 32 + 4 * 20
    assert average_weight_bits(graph, space.strategy) == 8


def test_the_cost_of_weights_is_the_sum_over_edges(
    graph: hago.QuantGraph, space: SearchSpace
) -> None:
    table = cost_table(space.strategy, space.choices, lambda one: weight_bytes(graph, one))
    few = tuple(one[-1] for one in space.choices)
    found = sum(one[bits] for one, bits in zip(table, few, strict=True))
    strategy = replace(space.strategy, bits=few)
    assert weight_bytes(graph, strategy) == weight_bytes(graph, space.strategy) + found


def test_running_costs_what_the_description_says(
    graph: hago.QuantGraph, vnni: Hardware, space: SearchSpace
) -> None:
    # 27*8*64, 72*8*64 and 32 multiply-accumulates of bytes
    assert running_cost(graph, vnni, space.strategy) == 0.25 * (13_824 + 36_864 + 32)


def test_hardware_without_costs_says_so(
    graph: hago.QuantGraph, sample: Hardware, dataset: LabelledBatches
) -> None:
    space = search_space(graph, sample, dataset, hago.QuantizeSettings())
    with pytest.raises(ArgumentError, match="'hago' has no entry for 'int8' in its mac_costs"):
        running_cost(graph, sample, space.strategy)


def test_a_budget_goes_before_accuracy(space: SearchSpace) -> None:
    score = budgeted(lambda one: sum(one.bits), 100)
    within = replace(space.strategy, bits=(50, 50))
    beyond = replace(space.strategy, bits=(50, 70))
    assert score(within, 0.3) == 0.3
    assert score(beyond, 0.9) == pytest.approx(-0.2)


def test_the_divergence_of_a_model_from_itself_is_zero(
    model: nn.Module, dataset: LabelledBatches
) -> None:
    with torch.no_grad():
        logits = [(images, model(images)) for images, _ in dataset]
    assert divergence(model, logits) == pytest.approx(0, abs=1e-6)


def test_fewer_bits_do_more_harm(evaluator: hago.Evaluator, space: SearchSpace) -> None:
    table = edge_sensitivities(evaluator, space.choices)
    assert [tuple(one) for one in table] == list(space.choices)
    searched = [one for one in table if len(one) > 1]
    assert all(one == {8: 0} for one in table if len(one) == 1)
    sums = [sum(one[bits] for one in searched) for bits in (4, 6, 8)]
    assert sums == sorted(sums, reverse=True)
    # a quarter of the step each time: the divergence falls by about sixteen
    assert sums[0] > 4 * sums[1] > 16 * sums[2] > 0


def test_an_edge_alone_is_the_graph_with_floats_elsewhere(
    graph: hago.QuantGraph, evaluator: hago.Evaluator, space: SearchSpace, dataset: LabelledBatches
) -> None:
    images = dataset[0][0]
    model = evaluator.simulated(space.strategy.bits)
    model.restrict_to([0])
    step = space.strategy.thresholds[0] / 2**7
    rounded = (images / step).round().clamp(-127, 127) * step
    with torch.no_grad():
        # float32 logits; the biases alone are rounded as well, to steps of the sums
        assert torch.allclose(model(images), graph.model(rounded), atol=1e-3)


def test_greedy_by_sensitivity_starts_where_it_hurts_least() -> None:
    choices = ((8, 6, 4), (8, 6, 4), (8,))
    harm = [{8: 0, 6: 1, 4: 3}, {8: 0, 6: 0.1, 4: 0.2}, {8: 0}]
    scores = {(8, 8, 8): 1.0, (8, 4, 8): 0.995, (4, 4, 8): 0.5, (6, 4, 8): 0.99}
    tuner = SensitivityGreedyTuner(choices, harm, tolerance=0.01)
    asked = []
    while candidates := tuner.ask():
        asked += candidates
        tuner.tell(candidates, [scores[one] for one in candidates])
    assert asked == list(scores)
    assert tuner.accepted == (6, 4, 8)

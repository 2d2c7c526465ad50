"""Sensitivities by the trace of the Hessian."""

import pytest
import torch
from torch import nn

from nncfx import hago
from nncfx.errors import ArgumentError
from nncfx.targets import Hardware


def test_the_estimate_of_a_linear_layer_by_hand(vnni: Hardware) -> None:
    """Logits W x: the trace by W is the sum of `|x|^2 tr(diag(p) - p p^T)` over samples."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 3, bias=False)).eval()
    x = torch.randn(40, 6)
    data, graph = [(x, torch.zeros(40))], hago.prepare_graph(model, x[:1])
    space = hago.search_space(graph, vnni, data, hago.QuantizeSettings())
    evaluator = hago.Evaluator(graph, vnni, space.strategy, data, hago.top1_accuracy)
    table = hago.hessian_sensitivities(evaluator, space.choices, probes=2000)
    weight = model[0].weight.detach()
    p = (x @ weight.T).softmax(1)
    trace = float((x.square().sum(1) * (p - p.square()).sum(1)).mean())
    for bits in (4, 8):
        step = weight.abs().amax(1, keepdim=True) / 2 ** (bits - 1)
        most = 2 ** (bits - 1) - 1
        rounded = (weight / step).round().clamp(-most, most) * step
        expected = trace / weight.numel() * float((rounded - weight).square().sum()) / 2
        # the mean of 2,000 probes: their deviation is about as large as they are
        assert table[1][bits] == pytest.approx(expected, rel=0.1)


def test_the_estimate_is_near_what_is_measured(
    evaluator: hago.Evaluator, space: hago.SearchSpace
) -> None:
    measured = hago.edge_sensitivities(evaluator, space.choices)
    estimated = hago.hessian_sensitivities(evaluator, space.choices, probes=16)
    assert [list(one) for one in estimated] == [list(one) for one in measured]
    for bits in (4, 5):
        sums = [sum(one.get(bits, 0) for one in table) for table in (measured, estimated)]
        assert sums[1] == pytest.approx(sums[0], rel=0.5)


def test_the_same_seed_gives_the_same_table(
    evaluator: hago.Evaluator, space: hago.SearchSpace
) -> None:
    tables = [
        hago.hessian_sensitivities(evaluator, space.choices, probes=1, seed=seed)
        for seed in (3, 3, 4)
    ]
    assert tables[0] == tables[1] != tables[2]


def test_an_edge_without_a_choice_has_no_harm(
    evaluator: hago.Evaluator, space: hago.SearchSpace
) -> None:
    only = tuple(one[:1] for one in space.choices[:-1]) + space.choices[-1:]
    table = hago.hessian_sensitivities(evaluator, only, probes=1)
    assert all(set(one.values()) == {0.0} for one in table[:-1])
    assert table[-1][4] > 0


def test_no_probe_is_refused(evaluator: hago.Evaluator, space: hago.SearchSpace) -> None:
    with pytest.raises(ArgumentError, match="0 probes estimate nothing"):
        hago.hessian_sensitivities(evaluator, space.choices, probes=0)

"""Thresholds of weights of least squared error for their bits."""

from dataclasses import replace
from pathlib import Path

import torch

from nncfx import hago
from nncfx.hago.execution.simulation import simulate_quantize
from nncfx.hago.search.evaluation import LabelledBatches
from nncfx.hago.strategy.edge_plan import make_plan
from nncfx.targets import Hardware


def weight_errors(
    graph: hago.QuantGraph, hardware: Hardware, strategy: hago.Strategy
) -> dict[str, float]:
    plan = make_plan(graph, hardware, strategy)
    errors = {}
    for number, edge in plan.edges.items():
        source = graph.nodes[graph.edges[number].source]
        if source.kind is hago.NodeKind.CONSTANT:
            weight = graph.model.get_parameter(source.name).detach().double()
            errors[source.name] = float((simulate_quantize(weight, edge) - weight).norm())
    return errors


def space_of(
    graph: hago.QuantGraph, hardware: Hardware, dataset: LabelledBatches
) -> hago.SearchSpace:
    return hago.search_space(graph, hardware, dataset, hago.QuantizeSettings())


def test_rounding_costs_less_at_every_weight_and_width(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches
) -> None:
    space = space_of(graph, vnni, dataset)
    fitted = hago.FittedWeights(graph)
    for bits in (4, 6, 8):
        uniform = replace(space.strategy, bits=tuple(bits for _ in space.strategy.bits))
        before = weight_errors(graph, vnni, uniform)
        after = weight_errors(graph, vnni, fitted(uniform))
        # factors are tried in steps of a hundredth: the peak itself may be the best
        assert all(after[name] <= 1.02 * before[name] for name in before)
        assert sum(after.values()) < sum(before.values())


def test_thresholds_of_activations_and_shapes_are_kept(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches
) -> None:
    strategy = space_of(graph, vnni, dataset).strategy
    found = hago.FittedWeights(graph)(strategy)
    for node, before, after in zip(
        graph.nodes, strategy.thresholds, found.thresholds, strict=True
    ):
        if node.kind is not hago.NodeKind.CONSTANT:
            assert before == after
        elif isinstance(before, tuple):
            assert isinstance(after, tuple)
            assert len(after) == len(before)
            assert all(one > 0 for one in after)


def test_a_weight_of_zeros_keeps_a_threshold(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches
) -> None:
    with torch.no_grad():
        graph.model.conv1.weight.zero_()
    strategy = space_of(graph, vnni, dataset).strategy
    thresholds = hago.FittedWeights(graph)(strategy).thresholds
    numbers = [n for n, one in enumerate(graph.nodes) if one.name == "conv1.weight"]
    assert thresholds[numbers[0]] == (1.0,) * 8


def test_a_search_with_fitted_weights_returns_and_logs_them_and_goes_on(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches, tmp_path: Path
) -> None:
    settings = hago.QuantizeSettings(fits_weights=True, most_trials=12)
    logs = [tmp_path / "whole.jsonl", tmp_path / "part.jsonl"]
    strategy, accuracy = hago.search_quantize_strategy(
        graph, vnni, dataset, log=logs[0], settings=settings
    )
    assert strategy == hago.FittedWeights(graph)(strategy)
    assert strategy == hago.best_strategy(logs[0], graph)
    simulated = hago.create_quantizer(graph, vnni, strategy).simulate(torch.float32)
    assert hago.top1_accuracy(simulated, dataset) == accuracy
    lines = logs[0].read_bytes().splitlines(keepends=True)
    logs[1].write_bytes(b"".join(lines[:5]))
    hago.search_quantize_strategy(graph, vnni, dataset, log=logs[1], settings=settings)
    assert logs[1].read_bytes() == logs[0].read_bytes()

"""From model and hardware to the best strategy."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import nncfx
from nncfx import hago
from nncfx.errors import ArgumentError, CompressionError, SearchError
from nncfx.hago.search.evaluation import LabelledBatches
from nncfx.hago.strategy.choice_space import searched_space
from nncfx.targets import Hardware

FEW = hago.QuantizeSettings(most_trials=5)


def test_the_demo_of_the_proposal_runs(model: nn.Module, dataset: LabelledBatches) -> None:
    graph = hago.prepare_graph(model, dataset[0][0][:1])
    hardware = hago.create_sample_hardware()
    strategy, sim_acc = hago.search_quantize_strategy(
        graph, hardware, dataset, tuner="batched_greedy", settings=FEW
    )
    quantizer = hago.create_quantizer(graph, hardware, strategy)
    simulated_graph = quantizer.simulate()
    quantized_graph = quantizer.quantize()
    assert hago.top1_accuracy(quantized_graph, dataset) == hago.top1_accuracy(
        simulated_graph, dataset
    )
    assert abs(hago.top1_accuracy(simulated_graph, dataset) - sim_acc) <= 1 / 64


def test_the_front_door_leads_here() -> None:
    assert nncfx.hago is hago


def test_greedy_gives_up_no_accuracy_that_the_most_bits_have(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches
) -> None:
    _, most = hago.search_quantize_strategy(graph, vnni, dataset, tuner="default")
    strategy, accuracy = hago.search_quantize_strategy(graph, vnni, dataset)
    assert accuracy >= most
    assert sum(strategy.bits) < 8 * len(strategy.bits)


def test_a_candidate_asked_for_again_is_not_evaluated_again(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches, tmp_path: Path
) -> None:
    evaluated = []

    def counted(model: nn.Module, batches: object) -> float:
        del model, batches
        evaluated.append(1)
        return 0.5

    settings = hago.QuantizeSettings(evaluate=counted)
    log = tmp_path / "log.jsonl"
    hago.search_quantize_strategy(graph, vnni, dataset, log=log, settings=settings)
    records = hago.read_log(log)
    assert len(evaluated) == len({one.strategy.bits for one in records}) < len(records)


def test_a_score_is_maximised_instead_of_the_accuracy(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches
) -> None:
    settings = hago.QuantizeSettings(score=lambda strategy, _: -sum(strategy.bits))
    strategy, _ = hago.search_quantize_strategy(graph, vnni, dataset, settings=settings)
    topology = hago.quantize_topology(graph, vnni)
    choices = hago.choice_space(graph, topology, vnni)
    fewest = sum(one[-1] for one in searched_space(graph, topology, choices))
    assert sum(strategy.bits) == fewest


@pytest.mark.slow
def test_several_processes_find_what_one_finds(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches, tmp_path: Path
) -> None:
    found = {}
    for processes in (1, 2):
        log = tmp_path / f"{processes}.jsonl"
        settings = hago.QuantizeSettings(processes=processes, most_trials=8)
        found[processes] = hago.search_quantize_strategy(
            graph, vnni, dataset, tuner="batched_greedy", log=log, settings=settings
        )
    assert found[1] == found[2]
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "2.jsonl").read_bytes()


def test_a_search_goes_on_after_its_log(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches, tmp_path: Path
) -> None:
    evaluated = []

    def counted(model: nn.Module, batches: object) -> float:
        evaluated.append(1)
        return hago.top1_accuracy(model, batches)

    whole = tmp_path / "whole.jsonl"
    settings = hago.QuantizeSettings(most_trials=20, evaluate=counted)
    expected = hago.search_quantize_strategy(graph, vnni, dataset, log=whole, settings=settings)
    lines = whole.read_bytes().splitlines(keepends=True)
    part = tmp_path / "part.jsonl"
    part.write_bytes(b"".join(lines[:7]) + lines[7][:100])
    evaluated.clear()
    found = hago.search_quantize_strategy(graph, vnni, dataset, log=part, settings=settings)
    assert found == expected
    assert part.read_bytes() == whole.read_bytes()
    assert len(evaluated) <= 13


def test_a_search_ends_after_the_most_trials_that_were_allowed(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches, tmp_path: Path
) -> None:
    """The settings' limit holds whatever the tuner still asks for, to the trial."""
    for most in (1, 7):
        log = tmp_path / f"{most}.jsonl"
        settings = hago.QuantizeSettings(most_trials=most)
        hago.search_quantize_strategy(
            graph, vnni, dataset, log=log, tuner="random", settings=settings
        )
        assert len([one for one in log.read_text().splitlines() if '"strategy"' in one]) == most


def test_an_unknown_tuner_is_refused(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches
) -> None:
    with pytest.raises(ArgumentError, match=r"no tuner 'gredy'.*Did you mean 'greedy'"):
        hago.search_quantize_strategy(graph, vnni, dataset, tuner="gredy")


def test_an_unknown_estimate_is_refused(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches
) -> None:
    settings = hago.QuantizeSettings(thresholds="kl_estimat")
    with pytest.raises(ArgumentError, match="Did you mean 'kl_estimate'"):
        hago.search_quantize_strategy(graph, vnni, dataset, settings=settings)


def test_hardware_that_computes_nothing_in_integers_is_refused(
    graph: hago.QuantGraph, dataset: LabelledBatches
) -> None:
    with pytest.raises(SearchError, match="'none' computes nothing of this model in integers"):
        hago.search_quantize_strategy(graph, Hardware(name="none", operations={}), dataset)


def test_data_that_gives_nan_is_refused_with_the_place(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches
) -> None:
    images = dataset[0][0].clone()
    images[0, 0, 0, 0] = torch.nan
    with pytest.raises(CompressionError, match="'/nncf_model_input_0' returns values from nan"):
        hago.search_quantize_strategy(graph, vnni, [(images, dataset[0][1])])


def test_a_strategy_for_other_weights_makes_no_quantizer(
    model: nn.Module, graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches
) -> None:
    strategy, _ = hago.search_quantize_strategy(graph, vnni, dataset, tuner="default")
    model.fc.weight.data *= 1.5
    other = hago.prepare_graph(model, torch.zeros(1, 3, 8, 8))
    with pytest.raises(CompressionError, match="Prepare the model that was searched"):
        hago.create_quantizer(other, vnni, strategy)


def test_inspection_names_the_first_bad_operation(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches
) -> None:
    strategy, _ = hago.search_quantize_strategy(graph, vnni, dataset, tuner="default")
    good = hago.create_quantizer(graph, vnni, strategy)
    assert good.inspect_graph_statistic(dataset[0][0]).first_bad is None
    thresholds = list(strategy.thresholds)
    thresholds[3] /= 50  # the first ReLU, as conv2 reads it
    broken = hago.create_quantizer(graph, vnni, replace(strategy, thresholds=tuple(thresholds)))
    found = broken.inspect_graph_statistic(dataset[0][0])
    assert found.first_bad == "Residual/Conv2d[conv2]/conv2d_0"
    assert found.first_inexact is None
    assert str(found).endswith("Above 5%: the first is Residual/Conv2d[conv2]/conv2d_0.")
    assert [one.address for one in found.operations] == graph.model.nncf.graph.addresses

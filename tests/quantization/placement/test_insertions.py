"""A plan is made once, and stays with the quantizers that it placed."""

import copy
import logging
from dataclasses import replace

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError
from nncfx.hago import create_quantizer, prepare_graph, quantize_topology
from nncfx.hago.strategy.strategy import Strategy
from nncfx.quantization import quantize, quantize_weights
from nncfx.quantization.placement.insertions import planned_target, plans_of
from nncfx.targets import hardware_named, target_named, target_with
from nncfx.training import create_compressed_model

DATA = [torch.randn(16, 4, generator=torch.Generator().manual_seed(0))]


def fresh() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def trained(target: str) -> nn.Module:
    item = {"algorithm": "quantization", "target": target}
    return create_compressed_model(
        fresh(), {"compression": item}, DATA[0], calibration_batches=DATA
    )[1]


def searched(target: str) -> nn.Module:
    hardware = hardware_named(target)
    graph = prepare_graph(fresh(), DATA[0])
    topology = quantize_topology(graph, hardware)
    strategy = Strategy(
        graph.model_hash, topology, (8,) * sum(topology.edge_conds), (1.0,) * len(graph.nodes)
    )
    return create_quantizer(graph, hardware, strategy).exportable()


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
def test_however_a_model_is_quantized_it_has_one_plan_for_its_target(target: str) -> None:
    for model in (quantize(fresh(), DATA, target=target), trained(target), searched(target)):
        (plan,) = plans_of(model)
        assert plan.target is not None
        assert (plan.target.name, plan.hardware) == (target, target)
        hooks = sorted({one.hook for one in model.nncf.hooks}, key=lambda one: one.number)
        assert tuple(one.planned for one in hooks) == plan.quantizers
        assert planned_target(copy.deepcopy(model)) is plan.target


def test_weights_alone_are_for_any_target() -> None:
    model = quantize_weights(fresh(), example_inputs=DATA[0])
    (plan,) = plans_of(model)
    assert planned_target(model) is None
    assert [one.parameter for one in plan.quantizers] == ["0.weight", "2.weight"]


def test_parts_for_several_targets_have_none_in_common() -> None:
    both = nn.Sequential(
        quantize(nn.Linear(4, 4), DATA, target="tensorrt"),
        quantize(nn.Linear(4, 4), DATA, target="openvino"),
    )
    with pytest.raises(ArgumentError, match="for openvino and tensorrt; a file is for one"):
        planned_target(both)


def test_kernels_of_no_known_target_have_none() -> None:
    known = hardware_named("tensorrt")
    assert target_with(known) is target_named("tensorrt")
    assert target_with(replace(known, alignment=7)) is None


def test_training_warns_once_of_keys_that_do_nothing(caplog: pytest.LogCaptureFixture) -> None:
    precision = {"type": "manual", "bits": [4, 8]}
    item = {"algorithm": "quantization", "initializer": {"precision": precision}}
    with caplog.at_level(logging.WARNING):
        create_compressed_model(fresh(), {"compression": item}, DATA[0], calibration_batches=DATA)
    assert sum("do nothing where bits are given" in one.message for one in caplog.records) == 1

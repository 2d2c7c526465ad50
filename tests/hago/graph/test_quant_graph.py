"""The graph, the topology and the choices of bits, by hand on a residual network."""

import copy

import pytest
import torch
from torch import nn

import nncfx
from nncfx import hago
from nncfx.errors import ArgumentError, CompressionError
from nncfx.hago.graph.quant_graph import NodeKind
from nncfx.hago.strategy.choice_space import searched_space, select_descriptors
from nncfx.targets import Descriptor, Hardware, hardware_named

NODES = [
    ("var", "/nncf_model_input_0"),
    ("constant", "conv1.weight"),
    ("call", "Residual/Conv2d[conv1]/conv2d_0"),
    ("call", "Residual/relu_0"),
    ("constant", "conv2.weight"),
    ("call", "Residual/Conv2d[conv2]/conv2d_0"),
    ("call", "Residual/__add___0"),
    ("call", "Residual/relu_1"),
    ("call", "Residual/adaptive_avg_pool2d_0"),
    ("call", "Residual/flatten_0"),
    ("constant", "fc.weight"),
    ("call", "Residual/Linear[fc]/linear_0"),
]


def test_nodes_are_in_post_order(graph: hago.QuantGraph) -> None:
    assert [(one.kind.value, one.name) for one in graph.nodes] == NODES


def test_edges_are_by_target_and_argument(graph: hago.QuantGraph) -> None:
    pairs = [(one.source, one.target, one.port) for one in graph.edges]
    assert pairs == [
        *((0, 2, 0), (1, 2, 1), (2, 3, 0), (3, 5, 0), (4, 5, 1), (5, 6, 0), (3, 6, 1)),
        *((6, 7, 0), (7, 8, 0), (8, 9, 0), (9, 11, 0), (10, 11, 1)),
    ]


def test_biases_of_folded_norms_are_no_edges(graph: hago.QuantGraph) -> None:
    assert graph.biases == {2: "conv1.bias", 5: "conv2.bias", 11: "fc.bias"}


def test_the_model_given_is_left_as_it_was(model: nn.Module) -> None:
    before = copy.deepcopy(model.state_dict())
    hago.prepare_graph(model, torch.zeros(1, 3, 8, 8))
    assert type(model).__name__ == "Residual"
    assert all(torch.equal(before[key], one) for key, one in model.state_dict().items())


def test_the_hash_changes_with_one_weight(model: nn.Module, graph: hago.QuantGraph) -> None:
    same = hago.prepare_graph(model, torch.zeros(1, 3, 8, 8))
    assert same.model_hash == graph.model_hash
    model.fc.weight.data[0, 0] += 1e-3
    assert hago.prepare_graph(model, torch.zeros(1, 3, 8, 8)).model_hash != graph.model_hash


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"takes an nn.Module, not a str"):
        hago.prepare_graph("resnet", torch.zeros(1))


def test_a_model_with_hooks_is_refused(model: nn.Module) -> None:
    nncfx.wrap(model, torch.zeros(1, 3, 8, 8))
    site = nncfx.tracing.WeightSite.of("fc.weight")
    model.nncf.register(nncfx.tracing.Insertion(site, nn.Identity(), 0, "mine"))
    model.nncf.commit()
    with pytest.raises(ArgumentError, match=r"carries 1 hooks, the first of 'mine'.*nncfx.strip"):
        hago.prepare_graph(model, torch.zeros(1, 3, 8, 8))


def test_topology_of_the_sample_hardware(graph: hago.QuantGraph, sample: Hardware) -> None:
    # convolutions, ReLUs and the addition; the average and all after it are float only
    topology = hago.quantize_topology(graph, sample)
    quantized = [n for n, one in enumerate(topology.node_conds) if one]
    assert quantized == [2, 3, 5, 6, 7]
    assert topology.edge_conds == tuple(edge.target in quantized for edge in graph.edges)


def test_a_node_with_a_float_descriptor_and_sources_in_float_stays_in_float(
    graph: hago.QuantGraph,
) -> None:
    both = (
        Descriptor(inputs=("int8",), output="int32"),
        Descriptor(inputs=("float32",), output="float32"),
    )
    topology = hago.quantize_topology(graph, Hardware(name="both", operations={"conv": both}))
    assert not any(topology.node_conds)
    only = Hardware(name="only", operations={"conv": both[:1], "relu": both})
    topology = hago.quantize_topology(graph, only)
    assert [n for n, one in enumerate(topology.node_conds) if one] == [2, 3, 5]


def test_what_only_moves_data_follows_its_source(graph: hago.QuantGraph, vnni: Hardware) -> None:
    topology = hago.quantize_topology(graph, vnni)
    assert topology.node_conds[9]  # flatten, which the hardware does not describe


def test_an_override_goes_before_the_hardware(graph: hago.QuantGraph, sample: Hardware) -> None:
    def first_in_float(node: hago.Node) -> bool | None:
        return False if node.name.endswith("conv1]/conv2d_0") else None

    topology = hago.quantize_topology(graph, sample, first_in_float)
    assert not topology.node_conds[2]
    assert topology.node_conds[5]


def test_choices_of_the_sample_hardware(graph: hago.QuantGraph, sample: Hardware) -> None:
    topology = hago.quantize_topology(graph, sample)
    byte, word = tuple(range(8, 3, -1)), tuple(range(32, 3, -1))
    # conv1: image, weight; relu; conv2: ReLU, weight; add: both; relu
    expected = (byte, byte, word, byte, byte, word, word, word)
    choices = hago.choice_space(graph, topology, sample)
    assert choices == expected
    # a ReLU takes sums as they come: its bits change nothing
    searched = searched_space(graph, topology, choices)
    assert searched == (byte, byte, (32,), byte, byte, word, word, (32,))


def test_the_output_of_the_source_limits_the_bits(graph: hago.QuantGraph) -> None:
    narrow = Hardware(
        name="narrow",
        operations={
            "conv": (Descriptor(inputs=("int8",), output="int16"),),
            "add": (Descriptor(inputs=("int32",), output="int32"),),
            "relu": (Descriptor(inputs=("int32",), output="int32"),),
        },
    )
    topology = hago.quantize_topology(graph, narrow)
    choices = hago.choice_space(graph, topology, narrow)
    into_add = [
        n for n, one in enumerate(topology.quantized_edges) if graph.edges[one].target == 6
    ]
    assert [choices[one][0] for one in into_add] == [16, 32]


def test_weights_lose_a_bit_where_sums_of_two_products_saturate(graph: hago.QuantGraph) -> None:
    most = {}
    for name in ("onnxruntime", "onnxruntime_avx2"):
        hardware = hardware_named(name)
        topology = hago.quantize_topology(graph, hardware)
        found = hago.choice_space(graph, topology, hardware)
        places = [graph.nodes[graph.edges[one].source].name for one in topology.quantized_edges]
        most[name] = dict(zip(places, (one[0] for one in found), strict=True))
    weights = {"conv1.weight", "conv2.weight", "fc.weight"}
    assert set(most["onnxruntime"].values()) == {8}
    assert {name for name, bits in most["onnxruntime_avx2"].items() if bits == 7} == weights


def test_the_first_descriptor_that_is_wide_enough_is_taken(graph: hago.QuantGraph) -> None:
    two = Hardware(
        name="two",
        operations={
            "conv": (
                Descriptor(inputs=("int4",), output="int32"),
                Descriptor(inputs=("int8",), output="int32"),
            )
        },
    )
    topology = hago.quantize_topology(graph, two)
    selected = select_descriptors(graph, topology, two, (4, 4, 4, 5))
    assert selected[2].inputs == ("int4",)
    assert selected[5].inputs == ("int8",)


def test_bits_that_no_descriptor_takes_are_refused_by_name(
    graph: hago.QuantGraph, sample: Hardware
) -> None:
    topology = hago.quantize_topology(graph, sample)
    with pytest.raises(
        CompressionError,
        match=r"'hago' has no feasible descriptor for 'Residual/Conv2d\[conv1\]/conv2d_0' with 9 "
        r"bits at input 0, 8 bits at input 1",
    ):
        select_descriptors(graph, topology, sample, (9, 8, 32, 8, 8, 32, 32, 32))


class Odd(nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        y = x + 1.0
        z = y * y
        return (z.mean(1) + x.mean(1)) * 2.0 + z[:, 0] * (index + index).float().mean()


def test_numbers_and_integers_of_the_model_stay_in_float() -> None:
    # wide kernels for everything: only what nncfx has exact rules for is quantized
    wide = (Descriptor(inputs=("int32",), output="int32"),)
    kinds = ("add", "mul", "avg_pool", "slice")
    hardware = Hardware(name="wide", operations=dict.fromkeys(kinds, wide))
    graph = hago.prepare_graph(Odd(), (torch.randn(2, 3), torch.ones(2, dtype=torch.int64)))
    topology = hago.quantize_topology(graph, hardware)
    found = {
        node.name: cond
        for node, cond in zip(graph.nodes, topology.node_conds, strict=True)
        if node.kind is NodeKind.CALL
    }
    assert not found["Odd/__add___0"]  # x + 1.0
    assert found["Odd/__mul___0"]  # y * y
    assert not found["Odd/__mul___1"]  # * 2.0
    integers = [one for one in found if found[one] is False and "__add__" in one]
    assert len(integers) == 2  # index + index as well


class Kept(nn.Module):
    """Reads a tensor that is neither a parameter nor a buffer, in one of three ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.conv, self.way = nn.Conv2d(3, 4, 1), way
        self.table = torch.rand(4, 4, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        if self.way == "mul":
            return y * self.table
        if self.way == "conv2d":
            return nn.functional.conv2d(y, self.table)
        return y + nn.functional.relu(self.table)


@pytest.mark.parametrize("way", ["mul", "conv2d", "relu"])
def test_what_reads_a_tensor_of_unknown_origin_stays_in_float(way: str, sample: Hardware) -> None:
    graph = hago.prepare_graph(Kept(way).eval(), torch.zeros(1, 3, 4, 4))
    topology = hago.quantize_topology(graph, sample, lambda _: True)
    names = [
        one.function.strip("_") for number, _, one in graph.calls() if number in _floats(topology)
    ]
    assert names == [way]


def _floats(topology: hago.Topology) -> list[int]:
    return [number for number, one in enumerate(topology.node_conds) if not one]

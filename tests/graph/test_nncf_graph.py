"""Promises of nncfx.graph.nncf_graph."""

from dataclasses import replace

import networkx as nx
import pytest

from nncfx.errors import GraphError
from nncfx.graph import NNCFGraph


def test_addresses_list_the_operations_only_in_order(graph: NNCFGraph) -> None:
    assert graph.addresses == ["Net/Conv2d[conv]/conv2d_0", "Net/relu_0", "Net/__add___0"]


def test_find_returns_the_operation(graph: NNCFGraph) -> None:
    assert graph.find("Net/relu_0") is graph.operations[1]


def test_find_names_the_nearest_address(graph: NNCFGraph) -> None:
    with pytest.raises(
        GraphError, match=r"No operation at 'Net/conv2d_0'. Did you mean"
    ) as caught:
        graph.find("Net/conv2d_0")
    assert "'Net/Conv2d[conv]/conv2d_0'?" in str(caught.value)


def test_the_edges_of_an_address_come_by_port(graph: NNCFGraph) -> None:
    assert [edge.target_port for edge in graph.incoming("Net/__add___0")] == [0, 1]
    assert [edge.target for edge in graph.outgoing("Net/relu_0")] == ["Net/__add___0"] * 2


def test_networkx_nodes_are_addresses_with_inputs_and_outputs(graph: NNCFGraph) -> None:
    assert list(graph.to_networkx()) == [
        "/nncf_model_input_0",
        *graph.addresses,
        "/nncf_model_output_0",
    ]


def test_networkx_keeps_both_edges_of_x_plus_x(graph: NNCFGraph) -> None:
    drawn = graph.to_networkx()
    assert isinstance(drawn, nx.MultiDiGraph)
    edges = drawn.get_edge_data("Net/relu_0", "Net/__add___0")
    assert {key: (one["source_port"], one["shape"]) for key, one in edges.items()} == {
        0: (0, (1, 4, 6, 6)),
        1: (0, (1, 4, 6, 6)),
    }


def test_graphs_with_other_edges_differ(graph: NNCFGraph) -> None:
    assert graph == replace(graph)
    assert graph != replace(graph, edges=graph.edges[:-1])

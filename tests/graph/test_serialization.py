"""Promises of nncfx.graph.serialization."""

import json

import pytest
import torch

import nncfx
from nncfx.errors import GraphError
from nncfx.graph import NNCFGraph


def test_json_gives_the_graph_back(graph: NNCFGraph) -> None:
    assert NNCFGraph.from_json(graph.to_json()) == graph


def test_equal_graphs_give_equal_json(graph: NNCFGraph) -> None:
    assert NNCFGraph.from_json(graph.to_json()).to_json() == graph.to_json()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nncfx_graph": 1}', "3"])
def test_what_is_no_graph_is_refused(text: str) -> None:
    with pytest.raises(GraphError, match="This is not a graph in JSON"):
        NNCFGraph.from_json(text)


def test_a_damaged_operation_is_refused(graph: NNCFGraph) -> None:
    document = json.loads(graph.to_json())
    del document["operations"][0]["outputs"]
    with pytest.raises(GraphError, match="KeyError: 'outputs'"):
        NNCFGraph.from_json(json.dumps(document))


def test_another_version_is_named() -> None:
    with pytest.raises(GraphError, match="of version 2; this nncfx reads version 1"):
        NNCFGraph.from_json('{"nncfx_graph": 2}')


@pytest.mark.parametrize("value", [0.5, -float("inf"), 1e-300])
def test_what_a_padding_is_filled_with_comes_back(value: float) -> None:
    graph = nncfx.trace(torch.nn.ConstantPad1d(1, value), torch.ones(1, 3))
    (again,) = NNCFGraph.from_json(graph.to_json()).operations
    assert again.fill == value
    assert again == graph.operations[0]


def test_a_statement_stays_one() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            y.relu_()
            return y

    graph = nncfx.trace(Model(), torch.ones(2))
    assert [one.is_statement for one in graph.operations] == [False, True]
    assert NNCFGraph.from_json(graph.to_json()) == graph


def test_a_sparse_tensor_stays_one() -> None:
    class Graph(torch.nn.Module):
        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return edges @ x

    graph = nncfx.trace(Graph(), (torch.ones(3, 2), torch.eye(3).to_sparse()))
    (product,) = graph.operations
    assert [one.layout for one in product.inputs if one] == ["sparse_coo", "strided"]
    assert NNCFGraph.from_json(graph.to_json()) == graph

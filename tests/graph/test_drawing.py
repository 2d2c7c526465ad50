"""Promises of nncfx.graph.drawing."""

import shutil
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from nncfx.errors import GraphError
from nncfx.graph import NNCFGraph


def test_dot_draws_nodes_edges_shapes_and_ports(graph: NNCFGraph) -> None:
    assert graph.to_dot() == (
        "digraph {\n"
        "  node [shape=box];\n"
        '  "/nncf_model_input_0" [shape=ellipse, label="nncf_model_input_0\\n1 x 3 x 8 x 8"];\n'
        '  "/nncf_model_output_0" [shape=ellipse, label="nncf_model_output_0\\n1 x 4 x 6 x 6"];\n'
        '  "Net/Conv2d[conv]/conv2d_0" [label="conv2d\\nNet/Conv2d[conv]"];\n'
        '  "Net/relu_0" [label="relu\\nNet"];\n'
        '  "Net/__add___0" [label="__add__\\nNet"];\n'
        '  "/nncf_model_input_0" -> "Net/Conv2d[conv]/conv2d_0" [label="1 x 3 x 8 x 8"];\n'
        '  "Net/Conv2d[conv]/conv2d_0" -> "Net/relu_0" [label="1 x 4 x 6 x 6"];\n'
        '  "Net/relu_0" -> "Net/__add___0" [label="1 x 4 x 6 x 6"];\n'
        '  "Net/relu_0" -> "Net/__add___0" [label="1 x 4 x 6 x 6\\n0 to 1"];\n'
        '  "Net/__add___0" -> "/nncf_model_output_0" [label="1 x 4 x 6 x 6"];\n'
        "}\n"
    )


def test_quotes_and_backslashes_are_escaped(graph: NNCFGraph) -> None:
    strange = graph.operations[0]._replace(address='a"b\\c/conv2d_0')
    drawn = replace(graph, operations=(strange,)).to_dot()
    assert 'label="conv2d\\na\\"b\\\\c"' in drawn


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_svg_draws_every_node(graph: NNCFGraph) -> None:
    root = ET.fromstring(graph.to_svg())  # noqa: S314 (our own text)
    titles = {one.text for one in root.iter("{http://www.w3.org/2000/svg}title")}
    assert titles >= {"Net/Conv2d[conv]/conv2d_0", "Net/relu_0", "Net/__add___0"}


def test_without_graphviz_the_fix_is_named(
    graph: NNCFGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(GraphError, match="apt install graphviz"):
        graph.to_svg()

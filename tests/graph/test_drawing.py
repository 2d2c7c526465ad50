"""Promises of nncfx.graph.drawing."""

from dataclasses import replace

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
    strange = replace(graph.operations[0], scope='a"b\\c')
    drawn = replace(graph, operations=(strange,)).to_dot()
    assert 'label="conv2d\\na\\"b\\\\c"' in drawn

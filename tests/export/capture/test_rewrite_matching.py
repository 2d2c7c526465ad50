"""Tests of matching onnxscript's rules without listing the graph for every node."""

from collections.abc import Iterator

import onnx_ir as ir
import onnxscript.optimizer
from onnxscript.rewriter import pattern
from onnxscript.rewriter._matcher import SimplePatternMatcher
from typing_extensions import override

from nncfx.export.capture.rewrite_matching import matching_first_nodes_first


class Counted(ir.Graph):
    """A graph that counts how often all its nodes are listed."""

    listed = 0

    @override
    def __iter__(self) -> Iterator[ir.Node]:
        self.listed += 1
        return super().__iter__()


def rewritten() -> list[str]:
    """Return operators after a rule that replaces ReLU and tanh of the same value."""
    x = ir.val("x", ir.DataType.FLOAT, (4,))
    nodes = [ir.node(kind, [x]) for kind in ("Tanh", "Sin", "Relu")]
    nodes += [ir.node(kind, [nodes[1].outputs[0]]) for kind in ("Relu", "Cos", "Tanh")]
    nodes += [ir.node("Relu", [nodes[-1].outputs[0]])]
    results = [one.outputs[0] for one in nodes if one.op_type != "Sin"]
    model = ir.Model(ir.Graph([x], results, nodes=nodes, opset_imports={"": 20}), ir_version=10)
    rule = pattern.RewriteRule(
        lambda op, x: (op.Relu(x), op.Tanh(x)), lambda op, x: (op.Abs(x), op.Neg(x))
    )
    assert pattern.RewriteRuleSet([rule]).apply_to_model(model) == 2
    return [node.op_type for node in model.graph]


def test_what_matches_is_the_same() -> None:
    slowly = rewritten()
    with matching_first_nodes_first():
        assert rewritten() == slowly
    assert sorted(slowly) == sorted(["Abs", "Neg", "Sin", "Abs", "Cos", "Neg", "Relu"])


def test_the_graph_is_not_listed_for_nodes_that_begin_no_pattern() -> None:
    def listed(relus: int) -> int:
        nodes = [ir.node("Relu", [ir.val("x", ir.DataType.FLOAT, (4,))], name="relu_0")]
        for index in range(1, relus):
            nodes.append(ir.node("Tanh", [nodes[-1].outputs[0]], name=f"tanh_{index}"))
        graph = Counted(
            [nodes[0].inputs[0]],
            [nodes[-1].outputs[0]],
            nodes=nodes,
            opset_imports={"": 20},
            name="main",
        )
        onnxscript.optimizer.optimize_ir(ir.Model(graph, ir_version=10))
        return graph.listed

    with matching_first_nodes_first():
        assert listed(40) == listed(10)
    assert listed(40) > listed(10)  # else onnxscript does it, and the module can go


def test_behind_it_onnxscript_is_as_before() -> None:
    before = SimplePatternMatcher.match
    with matching_first_nodes_first():
        assert SimplePatternMatcher.match is not before
    assert SimplePatternMatcher.match is before

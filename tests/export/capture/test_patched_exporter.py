"""What torch's exporter is spared changes nothing of what it writes; constants stay."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import onnxscript.optimizer
import pytest
import torch
from onnxscript.rewriter import pattern
from onnxscript.rewriter._matcher import SimplePatternMatcher
from torch import nn
from torch._export import utils
from torch.onnx._internal.exporter._registration import ONNXRegistry

import nncfx
from nncfx.export.capture import patched_exporter as module
from nncfx.export.capture.patched_exporter import patched_exporter


class Counted(ir.Graph):
    """A graph that counts how often all its nodes are listed."""

    listed = 0

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
    with patched_exporter():
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

    with patched_exporter():
        assert listed(40) == listed(10)
    assert listed(40) > listed(10)  # else onnxscript does it, and the module can go


def translated(registry: ONNXRegistry) -> dict[object, list[str]]:
    return {
        target: [f"{one.onnx_function!r} {one.signature} {one.is_complex}" for one in found]
        for target, found in registry.functions.items()
    }


@pytest.mark.parametrize("opset", [18, 20, 23])
def test_the_registry_is_the_one_that_torch_reads(opset: int) -> None:
    expected = ONNXRegistry().from_torchlib(opset_version=opset)
    with patched_exporter():
        for _ in range(2):
            found = ONNXRegistry().from_torchlib(opset_version=opset)
            assert found.opset_version == expected.opset_version == opset
            assert translated(found) == translated(expected)


def test_a_translation_of_one_export_is_unknown_to_the_next() -> None:
    with patched_exporter():
        first = ONNXRegistry().from_torchlib(opset_version=20)
        known = len(first.functions["aten::relu"])
        first.register_op(torch.ops.aten.relu.default, lambda x: x)
        first.register_op(torch.ops.aten.sin.out, lambda x: x)
        again = ONNXRegistry().from_torchlib(opset_version=20)
    assert len(first.functions["aten::relu"]) == known + 1
    assert len(again.functions["aten::relu"]) == known
    assert "aten::sin.out" not in again.functions


def test_torchlib_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(opset_version: int) -> ONNXRegistry:
        read.append(opset_version)
        return ONNXRegistry()

    monkeypatch.setattr(ONNXRegistry, "from_torchlib", staticmethod(counted))
    module._registry_read.cache_clear()
    try:
        for opset in (18, 20, 18):
            with patched_exporter():
                ONNXRegistry().from_torchlib(opset_version=opset)
    finally:
        module._registry_read.cache_clear()
    assert read == [18, 20]


def test_torchlib_is_read_again_where_torch_knows_more_operators() -> None:
    """As after an import of torchvision, whose operators torchlib translates, too."""
    module._registry_read.cache_clear()
    with patched_exporter():
        first = ONNXRegistry().from_torchlib(opset_version=20)
    with torch.library._scoped_library("nncfx_more", "DEF") as library:
        library.define("once(Tensor x) -> Tensor")
        with patched_exporter():
            again = ONNXRegistry().from_torchlib(opset_version=20)
    assert again.functions["aten::relu"][0] is not first.functions["aten::relu"][0]


def test_operators_that_come_later_are_composite_for_the_next_export() -> None:
    with patched_exporter():
        utils._collect_all_valid_cia_ops()
    with torch.library._scoped_library("nncfx_late", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
        with patched_exporter():
            found = utils._collect_all_valid_cia_ops()
        assert "nncfx_late::twice" in {one.name() for one in found}


def test_behind_it_torch_and_onnxscript_are_as_before() -> None:
    def present() -> list[object]:
        return [
            SimplePatternMatcher.match,
            vars(ONNXRegistry)["from_torchlib"],
            utils._materialize_cpp_cia_ops,
        ]

    before = present()
    with patched_exporter():
        assert all(a is not b for a, b in zip(present(), before, strict=True))
    assert all(a is b for a, b in zip(present(), before, strict=True))


@pytest.mark.parametrize(
    ("kind", "number", "is_left"),
    [
        *[("Add", 0.0, False), ("Mul", 1.0, False), ("Sub", 0.0, False), ("Div", 1.0, False)],
        *[("Add", 1e-12, True), ("Mul", 1.000001, True), ("Sub", 1e-8, True)],
        ("Div", 0.999995, True),
    ],
)
def test_only_what_changes_nothing_is_left_out(kind: str, number: float, is_left: bool) -> None:
    x = ir.val("x", ir.DataType.FLOAT, (4,))
    constant = ir.node("Constant", [], {"value": ir.tensor(np.float32(number))})
    result = ir.node(kind, [x, constant.outputs[0]])
    graph = ir.Graph(
        [x], [result.outputs[0]], nodes=[constant, result], opset_imports={"": 20}, name="main"
    )
    result.outputs[0].dtype, result.outputs[0].shape = ir.DataType.FLOAT, ir.Shape((4,))
    with patched_exporter():
        onnxscript.optimizer.optimize_ir(ir.Model(graph, ir_version=10))
    assert (kind in [node.op_type for node in graph]) == is_left


def test_a_logarithm_of_zero_and_a_little_is_finite_in_the_file(tmp_path: Path) -> None:
    """torch.onnx.export alone leaves the addition out, and 0 * log(0) is NaN."""

    class Entropy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            shares = x.relu()
            return shares * (shares + 1e-12).log()

    x = torch.tensor([[-1.0, 0.0, 0.5, 2.0]])
    session = ort.InferenceSession(nncfx.export_onnx(Entropy(), tmp_path / "entropy.onnx", x).path)
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(found, Entropy()(x), rtol=1e-5)

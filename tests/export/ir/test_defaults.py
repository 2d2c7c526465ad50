"""Files hold no defaults, and mean the same without them."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.export.ir.defaults import leave_out_defaults
from onnx_files import run_file
from small_models import Function

TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
graph (float[1, 2, 6, 6] x) => (float[1, 2, n, m] y)
<int8[2, 1, 1, 1] w = {3, -4}, float s = {0.1}, int8 zw = {0}, int8 h = {3}, uint8 zx = {0}> {
  q = QuantizeLinear(x, s, zx)
  d = DequantizeLinear(q, s, zx)
  a = DequantizeLinear(w, s, zw)
  b = DequantizeLinear(w, s, h)
  c = Conv <auto_pad: string = "NOTSET", group: int = 2, kernel_shape: ints = [1, 1],
    strides: ints = [1, 1], dilations: ints = [1, 1], pads: ints = [0, 0, 0, 0]> (d, a)
  e = Conv <group: int = 2, pads: ints = [0, 0, 1, 1]> (c, b)
  p = MaxPool <kernel_shape: ints = [2, 2], strides: ints = [2, 1], pads: ints = [0, 0, 0, 0],
    ceil_mode: int = 0> (e)
  y = Softmax <axis: int = -1> (p)
}
"""


@pytest.fixture
def model() -> ir.Model:
    return ir.from_onnx_text(TEXT)


def written(model: ir.Model, path: Path) -> onnx.ModelProto:
    ir.save(model, path)
    onnx.checker.check_model(path, full_check=True)
    return onnx.load(path)


def test_only_what_differs_from_the_defaults_is_left(model: ir.Model, tmp_path: Path) -> None:
    leave_out_defaults(model)
    graph = written(model, tmp_path / "m.onnx").graph
    attributes = {one.output[0]: sorted(a.name for a in one.attribute) for one in graph.node}
    assert attributes["c"] == ["group"]
    assert attributes["e"] == ["group", "pads"]
    assert attributes["p"] == ["kernel_shape", "strides"]
    assert attributes["y"] == []
    assert list(graph.value_info) == []


def test_zero_points_are_kept(model: ir.Model, tmp_path: Path) -> None:
    leave_out_defaults(model)
    graph = written(model, tmp_path / "m.onnx").graph
    names = [one.name for one in graph.initializer]
    assert {"zx", "zw"} <= set(names)
    assert all(len(one.input) == 3 for one in graph.node if one.output[0] in {"q", "d", "a"})


def test_the_file_computes_what_it_did(model: ir.Model, tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(1, 2, 6, 6)).astype(np.float32)
    written(model, tmp_path / "a.onnx")
    leave_out_defaults(model)
    written(model, tmp_path / "b.onnx")
    found = []
    for name in "ab":
        path = tmp_path / f"{name}.onnx"
        found.append(run_file(path, (x,))[0])
    np.testing.assert_array_equal(*found)


def test_types_behind_operators_of_a_runtime_are_kept() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>'
        "graph (float[4] x) => (float[4] y) {"
        " a = com.microsoft.QuickGelu (x)  b = Relu(a)  y = Relu(b) }"
    )
    for node in model.graph:
        node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    leave_out_defaults(model)
    assert [node.outputs[0].type is None for node in model.graph] == [False, True, False]


def test_types_behind_an_operation_without_inference_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # GroupNormalization is a function; the inference of ONNX 1.22 says nothing of its output
    model = ir.from_onnx_text("""
<ir_version: 10, opset_import: ["" : 21]>
graph (float[1, 4, 6, 6] x) => (float[1, 4, 3, 3] y)
<float[4] s = {1, 1, 1, 1}, float[4] b = {0, 0, 0, 0}, float[1, 4, 6, 6] a, float[1, 4, 6, 6] c> {
  a = Relu (x)
  c = GroupNormalization <num_groups: int = 2> (a, s, b)
  y = AveragePool <kernel_shape: ints = [2, 2], strides: ints = [2, 2]> (c)
}
""")
    leave_out_defaults(model)
    graph = written(model, tmp_path / "m.onnx").graph
    assert [one.name for one in graph.value_info] == ["c"]
    assert not caplog.records


def test_what_inference_takes_for_something_else_is_kept(tmp_path: Path) -> None:
    """It takes one-sided transforms for two-sided ones, and sequences in a loop for tensors."""

    def forward(m: Function, wave: Tensor, words: Tensor, offsets: Tensor) -> Tensor:
        waves = torch.stft(wave, 64, 32, window=torch.ones(64), return_complex=True)
        return waves.abs().mean(2) + m.bag(words, offsets)

    torch.manual_seed(0)
    inputs = (torch.randn(3, 320), torch.randint(20, (7,)), torch.tensor([0, 3, 4]))
    net = Function(forward, bag=nn.EmbeddingBag(20, 33, mode="sum")).eval()
    path = nncfx.export_onnx(net, tmp_path / "m.onnx", inputs, dynamic_batch=False).path
    found = run_file(path, inputs)[0]
    np.testing.assert_allclose(found, net(*inputs).detach().numpy(), rtol=1e-4, atol=1e-4)

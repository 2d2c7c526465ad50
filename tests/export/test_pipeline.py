"""The passes of the export: their order is in one place, and nodes remember them."""

from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
import torch
from torch import nn

import nncfx
from nncfx.export import PASSES, Draft, ExportPass, explain, export_onnx, onnx_export
from nncfx.export.ir.export_pass import run_passes
from nncfx.export.ir.graph_properties import GRAPH_PROPERTIES


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.relu, self.head = nn.ReLU(), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.bn(self.conv(x)))
        return self.head(x.mean((2, 3)))


def exported(folder: Path, *, quantized: bool) -> Path:
    torch.manual_seed(0)
    model, image = Net().eval(), torch.randn(2, 3, 12, 12)
    if quantized:
        model = nncfx.quantize(model, [image])
    path = folder / "net.onnx"
    export_onnx(model, path, image)
    return path


def test_passes_have_names_of_their_own_and_reasons() -> None:
    names = [one.name for one in PASSES]
    assert len(set(names)) == len(names)
    assert all(one.reason for one in PASSES)


def test_a_file_tells_which_pass_made_each_of_its_quantizers(tmp_path: Path) -> None:
    path = exported(tmp_path, quantized=True)
    told, graph = explain(path), onnx.load(path).graph
    kinds = {node.name: node.op_type for node in graph.node}
    quantizers = [name for name, kind in kinds.items() if kind == "QuantizeLinear"]
    assert quantizers
    # nodes copy what the exporter wrote into their neighbours, but not what passes changed there
    assert {told[name] for name in quantizers} == {("write_pairs",)}
    order = [one.name for one in PASSES]
    for names in told.values():
        assert sorted(names, key=order.index) == list(names)
    # the norm is in the scales and in the bias of the convolution, which are one pass each
    (conv,) = (name for name, kind in kinds.items() if kind == "Conv")
    assert {"fold_batch_norms", "add_integer_biases"} <= set(told[conv])


def test_what_no_pass_changed_is_not_named(tmp_path: Path) -> None:
    assert explain(exported(tmp_path, quantized=False)) == {}


@pytest.mark.parametrize("target", ["onnxruntime", "openvino", "tensorrt"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_passes_ensure_holds_after_each_pass(
    target: str, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensured: list[str] = []
    seen: list[str] = []

    def watched(draft: Draft, passes: Sequence[ExportPass]) -> None:
        def look(one: ExportPass) -> None:
            seen.append(one.name)
            assert set(one.requires) <= set(ensured), one.name
            ensured.extend(one.ensures)
            for name in ensured:
                assert not GRAPH_PROPERTIES[name](draft.graph), (one.name, name)

        run_passes(draft, passes, look)

    monkeypatch.setattr(onnx_export, "run_passes", watched)
    torch.manual_seed(0)
    model, image = Net().eval(), torch.randn(2, 3, 12, 12)
    quantized = nncfx.quantize(model, [image], target=target).to(dtype)
    export_onnx(quantized, tmp_path / "net.onnx", image.to(dtype), target)
    assert set(ensured) == set(GRAPH_PROPERTIES)
    assert {"upcast_to_float32", "write_pairs", "remove_unused"} <= set(seen)


def test_properties_find_what_breaks_them() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "nncfx" : 1]>
    g (float[4] x) => (float[4] y) <float s = {1.0}, int32 z = {0}, float[4] w = {1, 2, 3, 4}> {
      half = Cast<to = 10>(x)
      back = Cast<to = 1>(half)
      doubled = Add(w, w)
      q = nncfx.FakeQuantize<axis = -1, quant_min = 0, quant_max = 255>(doubled, s, z)
      idle = Neg(x)
      y = Add(back, q) }"""
    graph = ir.from_onnx_text(text).graph
    graph[1].inputs[0].type = ir.TensorType(ir.DataType.FLOAT16)
    found = {name: breaks(graph) for name, breaks in GRAPH_PROPERTIES.items()}
    assert set(found["quantized in float32"]) == {"half"}
    assert found["constants stored"] == ["doubled"]
    assert len(found["no fake quantizers"]) == len(found["no unused nodes"]) == 1

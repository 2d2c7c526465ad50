"""The passes of the export: their order is in one place, and nodes remember them."""

from pathlib import Path

import onnx
import torch
from torch import nn

import nncfx
from nncfx.export import PASSES, explain, export_onnx


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

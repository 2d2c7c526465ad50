"""The target is quantized and exported for as it says."""

from pathlib import Path

import onnx
import torch
from nncfx_random import LINEAR_ONLY
from torch import nn

import nncfx
from nncfx.targets import Target


def test_linear_layers_alone_are_quantized(tmp_path: Path) -> None:
    inputs = torch.randn(2, 3, 8, 8)
    layers = (nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    model = nncfx.quantize(nn.Sequential(*layers).eval(), [inputs], target=LINEAR_ONLY)
    path = tmp_path / "model.onnx"
    nncfx.export_onnx(model, path, inputs, target=LINEAR_ONLY)
    stored = onnx.load(path).graph.initializer
    integers = [one for one in stored if one.data_type == onnx.TensorProto.INT8]
    assert [one.name for one in integers if len(one.dims) > 1] == ["3.weight"]


def test_a_file_describes_it_as_well() -> None:
    assert Target.from_json(LINEAR_ONLY.to_json()) == LINEAR_ONLY

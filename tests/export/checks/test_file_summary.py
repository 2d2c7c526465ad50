"""A summary counts what stands in the file."""

from pathlib import Path

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import ExportError
from nncfx.export import summarize_onnx


def test_operators_weights_and_shapes_are_counted(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False)).eval()
    file = nncfx.export_onnx(model, tmp_path / "m.onnx", torch.ones(1, 3))
    found = summarize_onnx(file)
    assert found.weight_bytes == {"float32": 4 * (12 + 4 + 8)}
    assert found.operators["Relu"] == 1
    assert (
        sum(found.operators[name] for name in ("Gemm", "MatMul") if name in found.operators) == 2
    )
    assert list(found.inputs.values()) == ["float32 batchx3"]
    assert found.size_bytes == file.size_bytes
    assert found.opset == file.opset


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"no model")
    with pytest.raises(ExportError, match="is not an ONNX model"):
        summarize_onnx(tmp_path / "a.onnx")

"""Convolutions that skip pixels run in integers in OpenVINO, and compute what they did."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.quantization import QuantizeOptions
from onnx_files import run_file


class Unit(nn.Module):
    """A sum that two convolutions of one pixel read, as between two stages of ResNet-50."""

    def __init__(self, strides: tuple[int, int]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.other = nn.Conv2d(16, 16, 3, padding=1)
        self.left, self.right = (nn.Conv2d(16, 16, 1, stride=one) for one in strides)
        self.last = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = torch.relu(x + self.other(x))
        left, right = torch.relu(self.left(x)), self.right(x)
        return torch.relu(self.last(left)).mean((2, 3)) + right.mean((2, 3))


X = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def file(folder: Path, strides: tuple[int, int], target: str = "openvino") -> Path:
    options = QuantizeOptions(overflow_fix="enable")  # OpenVINO is exact on any CPU
    model = nncfx.quantize(Unit(strides).eval(), [X], options=options)
    return nncfx.export_onnx(model, folder / "m.onnx", X, target, dynamic_batch=False).path


def poolings(path: Path) -> int:
    return Counter(one.op_type for one in onnx.load(path).graph.node)["MaxPool"]


@pytest.mark.parametrize("strides", [(2, 2), (1, 2), (3, 3)])
def test_openvino_computes_no_convolution_in_float(
    tmp_path: Path, strides: tuple[int, int]
) -> None:
    openvino = pytest.importorskip("openvino")
    compiled = openvino.Core().compile_model(file(tmp_path, strides), "CPU")
    kernels = {
        one.get_friendly_name(): one.get_rt_info()["primitiveType"].astype(str)
        for one in compiled.get_runtime_model().get_ordered_ops()
        if one.get_rt_info()["layerType"].astype(str) == "Convolution"
    }
    assert len(kernels) == 5
    assert all("I8" in one for one in kernels.values()), kernels


def test_only_where_all_readers_skip_alike_and_only_for_openvino(tmp_path: Path) -> None:
    assert poolings(file(tmp_path, (2, 2))) == 1
    assert poolings(file(tmp_path, (1, 2))) == 0
    assert poolings(file(tmp_path, (2, 2), "onnxruntime")) == 0


def test_the_file_computes_what_it_did(tmp_path: Path) -> None:
    # in ONNX Runtime, whose integer kernels sum up exactly
    results = []
    for target in ("openvino", "onnxruntime"):
        path = file(tmp_path, (2, 2), target)
        results.append(run_file(path, X)[0])
    np.testing.assert_array_equal(*results)

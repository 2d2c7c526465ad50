"""Products of integers stay in integers where a bias or a ReLU stands behind them."""

from pathlib import Path

import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

import nncfx
from nncfx.quantization import integer_arithmetic
from nncfx.runtimes import integer_kernels
from onnx_files import run_file


def biases(path: Path) -> list[tuple[int, ...]]:
    """Return the shapes of the constants that are added."""
    graph = onnx.load(path).graph
    constants = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    added = [name for node in graph.node if node.op_type == "Add" for name in node.input]
    return [constants[name].shape for name in added if name in constants]


@pytest.mark.parametrize(
    ("is_open", "shapes"), [(True, [(8,), (5,)]), (False, [(1, 1, 8), (1, 1, 5)])]
)
def test_rows_of_a_fixed_number_are_multiplied_in_integers_as_those_of_an_open_one(
    tmp_path: Path, shapes: list[tuple[int, ...]], *, is_open: bool
) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 6, 16)
    layers = nn.Sequential(nn.Linear(16, 8), nn.GELU(), nn.Linear(8, 5))
    model = nncfx.quantize(layers, [x])
    path = nncfx.export_onnx(model, tmp_path / "m.onnx", x, dynamic_batch=is_open).path
    assert biases(path) == shapes
    kernels = integer_kernels(path, x)
    assert (len(kernels.integer), kernels.float) == (2, ())
    (found,) = run_file(path, x)
    with integer_arithmetic(model):
        # a step of the second layer's input, where GELU's last bits decide
        assert torch.allclose(model(x), torch.as_tensor(found), atol=2e-3)


def test_rows_of_a_matrix_and_floats_are_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 6, 16)
    path = nncfx.export_onnx(nn.Linear(16, 8), tmp_path / "f.onnx", x, dynamic_batch=False).path
    assert biases(path) == [(8,)]
    model = nncfx.quantize(nn.Sequential(nn.Flatten(), nn.Linear(96, 8)), [x])
    path = nncfx.export_onnx(model, tmp_path / "m.onnx", x, dynamic_batch=False).path
    assert biases(path) == []  # a Gemm has its bias
    assert integer_kernels(path, x).float == ()


@pytest.mark.parametrize("clamp", [nn.ReLU(), nn.ReLU6(), nn.Hardtanh(-0.25, 0.5)])
def test_a_product_clamped_for_a_float_layer_is_in_integers(
    clamp: nn.Module, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), clamp, nn.Linear(8, 8)).eval()
    x = torch.randn(4, 8) * 3
    quantized = nncfx.quantize(model, [x], ignored_scopes=["{re}.*\\[2\\].*"])
    file = nncfx.export_onnx(quantized, tmp_path / "clamp.onnx", x)
    kernels = integer_kernels(file.path, x)
    assert kernels.integer == ("0/Gemm",)
    assert kernels.float == ("2/Gemm",)
    (found,) = run_file(file.path, x)
    with torch.no_grad(), integer_arithmetic(quantized):
        assert found == pytest.approx(quantized(x).numpy(), abs=1e-6)


class Spread(nn.Module):
    """A residual network of matrices: what one layer reads is also added in float, or returned."""

    def __init__(self, *, is_returned: bool) -> None:
        super().__init__()
        self.read, self.refine = nn.Linear(16, 16), nn.Linear(16, 16)
        self.is_returned = is_returned

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        features = self.read(x)
        refined = self.refine(features)
        return (refined, features) if self.is_returned else (features.exp() + refined,)


@pytest.mark.parametrize("is_returned", [False, True])
def test_a_product_that_is_read_in_integers_and_in_float_is_in_integers(
    tmp_path: Path, *, is_returned: bool
) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 16)
    model = nncfx.quantize(Spread(is_returned=is_returned).eval(), [x])
    path = nncfx.export_onnx(model, tmp_path / "m.onnx", x).path
    kernels = integer_kernels(path, x)
    assert (len(kernels.integer), kernels.float) == (2, ())
    found = run_file(path, x)
    with integer_arithmetic(model):
        for one, expected in zip(found, model(x), strict=True):
            assert torch.allclose(expected, torch.as_tensor(one), atol=1e-6)

"""SiLUs between quantizers run in integers, equal to the simulation in integers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import nncfx
from nncfx.quantization import integer_arithmetic
from nncfx.runtimes import integer_kernels
from onnx_files import run_file


class Upsampled(nn.Module):
    """A SiLU's result is read in integers, and resized in float, as in YOLO's neck."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.joint = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = functional.silu(self.read(x))
        return self.joint(features), functional.interpolate(features, scale_factor=2)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "convolutions": (
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 16, 3), nn.SiLU(), nn.Conv2d(16, 8, 1)),
            *(nn.SiLU(inplace=True), nn.Conv2d(8, 4, 1)),
        ),
        2,
    ),
    "read in float as well": (Upsampled, 1),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_silu_between_quantizers_is_in_integers(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, gates = NETWORKS[kind]
    x = torch.randn(2, 3, 8, 8)
    model = nncfx.quantize(make().eval(), [x])
    path = nncfx.export_onnx(model, tmp_path / "m.onnx", x).path
    operators = integer_kernels(path, x).operators
    assert (operators["QLinearSigmoid"], operators["QLinearMul"]) == (gates, gates)
    found = run_file(path, x)
    with torch.no_grad(), integer_arithmetic(model):
        expected = model(x)
    for one, other in zip(
        found, [expected] if torch.is_tensor(expected) else expected, strict=True
    ):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-6)


def test_it_is_the_exact_silu_but_for_three_roundings(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.SiLU(), nn.Conv2d(1, 1, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float(parameter.ndim > 1))
    x = torch.linspace(-8, 8, 256).reshape(1, 1, 16, 16)
    quantized = nncfx.quantize(model.eval(), [x])
    path = nncfx.export_onnx(quantized, tmp_path / "m.onnx", x).path
    (found,) = run_file(path, x)
    read = x.numpy().astype(np.float64)
    exact = read / (1 + np.exp(-read))
    # half a step of x, where SiLU is as steep as 1.1, of the sigmoid, times 8, and of the product
    inner = np.abs(read) < 7  # ranges may leave out the ends
    assert (
        np.abs(found - exact)[inner].max()
        < 1.1 * 16 / 255 / 2 + 8 / 256 / 2 + 8.3 / 255 / 2 + 1e-4
    )


def test_other_targets_keep_it_in_float(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)
    model = nncfx.quantize(NETWORKS["convolutions"][0]().eval(), [x], target="openvino")
    path = nncfx.export_onnx(model, tmp_path / "m.onnx", x, target="openvino").path
    assert "QLinearSigmoid" not in integer_kernels(path, x).operators

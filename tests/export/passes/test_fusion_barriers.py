"""What is left in float is computed in float by ONNX Runtime, too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import nncfx
from nncfx.quantization import integer_arithmetic, quantize_weights
from nncfx.runtimes import integer_kernels
from onnx_files import run_file

LAYERS: dict[str, Any] = {
    "Conv2d": lambda: nn.Conv2d(8, 8, 3, padding=1),
    "no bias": lambda: nn.Conv2d(8, 8, 3, padding=1, bias=False),
    "depthwise": lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8),
    "ConvTranspose2d": lambda: nn.ConvTranspose2d(8, 8, 3, padding=1),
    "Linear": lambda: nn.Linear(8, 8),
}


def surrounded(layer: nn.Module) -> nn.Sequential:
    """Return a network in which `layer` reads, and is read by, layers in integers."""
    if isinstance(layer, nn.Linear):
        return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), layer, nn.ReLU(), nn.Linear(8, 8)).eval()
    ends = (nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1))
    return nn.Sequential(ends[0], nn.ReLU(), layer, nn.ReLU(), ends[1]).eval()


@pytest.mark.parametrize("kind", LAYERS)
def test_an_ignored_layer_keeps_its_float_weights(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = surrounded(LAYERS[kind]())
    x = torch.randn((4, 8) if kind == "Linear" else (4, 8, 6, 6))
    quantized = nncfx.quantize(model, [x], ignored_scopes=["{re}.*\\[2\\].*"])
    file = nncfx.export_onnx(quantized, tmp_path / "float.onnx", x)
    kernels = integer_kernels(file.path, x)
    assert len(kernels.integer) == 2
    assert len(kernels.float) == 1
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # sums without VNNI
    session = onnxruntime.InferenceSession(file.path, options)
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    with torch.no_grad(), integer_arithmetic(quantized):
        expected = quantized(x).numpy()
    step = 1e-6 * np.abs(expected).max()
    assert np.mean(np.abs(found - expected) > step) < 0.002


@pytest.mark.parametrize("axes", [{}, {"input": {2: "length"}}], ids=["fixed", "any length"])
def test_an_ignored_layer_of_one_channel_keeps_its_float_weights(
    axes: dict[str, dict[int, str]], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 1, 3), nn.Conv1d(1, 2, 9), nn.Conv1d(2, 1, 3)).eval()
    with torch.no_grad():
        model[1].weight[0] *= 100
    x = torch.randn(4, 2, 60)
    quantized = nncfx.quantize(model, [x], ignored_scopes=["{re}.*\\[1\\].*"])
    path = tmp_path / "float.onnx"
    nncfx.export_onnx(quantized, path, x, dynamic_axes=axes)
    (found,) = run_file(path, x)
    with torch.no_grad(), integer_arithmetic(quantized):
        expected = quantized(x).numpy()
    assert np.mean(np.abs(found - expected) > 1e-6 * np.abs(expected).max()) < 0.01


class LinearAttention(nn.Module):
    """Attention with a softmax over the positions of the keys (Shen et al. 2021, section 3.2)."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(8, 24)
        self.project = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        queries, keys, values = self.read(x).chunk(3, dim=-1)
        return self.project(queries @ (keys.softmax(1).transpose(1, 2) @ values))


def test_a_softmax_with_outputs_alike_does_not_overflow(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = LinearAttention().eval(), torch.randn(1, 20, 8) / 4
    quantized = nncfx.quantize(model, [x])
    file = nncfx.export_onnx(quantized, tmp_path / "attention.onnx", x)
    assert not integer_kernels(file.path, x).float
    (found,) = run_file(file.path, x)
    with torch.no_grad(), integer_arithmetic(quantized):
        expected = quantized(x).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)


def in_openvino(
    model: nn.Module, x: torch.Tensor, folder: Path, *, dynamic_batch: bool = True
) -> tuple[Any, Any]:
    """Return what OpenVINO computes of a quantized model's file, and the simulation."""
    quantized = nncfx.quantize(model.eval(), [x, x - 0.5], target="openvino")
    return run_in_openvino(quantized, x, folder, dynamic_batch=dynamic_batch)


def run_in_openvino(
    quantized: nn.Module, x: torch.Tensor, folder: Path, *, dynamic_batch: bool = True
) -> tuple[Any, Any]:
    path = folder / "model.onnx"
    nncfx.export_onnx(quantized, path, x, "openvino", dynamic_batch=dynamic_batch)
    (found,) = run_file(path, x, "openvino")
    with torch.no_grad():
        return found, quantized(x).numpy()


class JoinedTokens(nn.Module):
    """Tokens of two kinds, and a prompt, which one layer reads."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt = nn.Parameter(torch.randn(1, 4, 8))
        self.first, self.layer = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        prompt = self.prompt.expand(len(x), -1, -1)
        result: torch.Tensor = self.layer(torch.cat([prompt, self.first(x)], 1))
        return result


class Shrunk(nn.Module):
    """A cubic resize to fewer pixels between convolutions."""

    def __init__(self, **size: object) -> None:
        super().__init__()
        self.size = size
        self.before, self.behind = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.behind(nn.functional.interpolate(self.before(x), mode="bicubic", **self.size))


@pytest.mark.parametrize("size", [{"scale_factor": 0.5}, {"size": (5, 20)}], ids=str)
@pytest.mark.parametrize("is_open", [True, False])
def test_cubic_resizes_to_fewer_pixels_run(
    size: dict[str, Any], tmp_path: Path, *, is_open: bool
) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 9, 9)
    quantized = nncfx.quantize(Shrunk(**size).eval(), [x])
    file = nncfx.export_onnx(quantized, tmp_path / "m.onnx", x, dynamic_batch=is_open)
    (found,) = run_file(file, x)
    expected = quantized(x)
    assert (torch.as_tensor(found) - expected).norm() < 0.01 * expected.norm()


class JoinedChannels(nn.Module):
    """Channels of two layers that become pixels, as in networks for super-resolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)
        self.layer = nn.Conv2d(2, 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = nn.functional.pixel_shuffle(torch.cat([x, self.second(x)], 1), 2)
        result: torch.Tensor = self.layer(x)
        return result


class Pooled(nn.Module):
    """A head on the greatest and the least of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Conv2d(3, 8, 1), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.silu(self.first(x))
        pooled = torch.cat([x.amax((2, 3)), x.amin((2, 3))], 1)
        result: torch.Tensor = self.head(pooled)
        return result


class Widened(nn.Module):
    """Adds zeros to the channels that it passes on, as PyramidNet does."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(size, size + 2, 3, padding=1) for size in (4, 6)])
        self.last = nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x) + nn.functional.pad(x, (0, 0, 0, 0, 0, 2))
        result: torch.Tensor = self.last(x)
        return result


def test_openvino_adds_channels_of_zeros(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 6, 6)
    found, expected = in_openvino(Widened(), x, tmp_path)
    assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)


class Memory(nn.Module):
    """Attention to a table whose rows are keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table = nn.Linear(16, 16), nn.Parameter(torch.randn(48, 16) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layer(x) @ self.table.T).softmax(-1) @ self.table


def without_biases() -> nn.Module:
    layers = nn.Linear(16, 48, bias=False), nn.ReLU(), nn.Linear(48, 10, bias=False)
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("make", "shape", "dynamic"),
    [
        pytest.param(JoinedTokens, (2, 5, 8), True, id="joined tokens, open batch"),
        pytest.param(JoinedTokens, (2, 5, 8), False, id="joined tokens"),
        pytest.param(JoinedChannels, (2, 3, 6, 6), False, id="joined channels become pixels"),
        pytest.param(Pooled, (2, 3, 6, 6), True, id="the greatest and the least"),
        pytest.param(without_biases, (8, 16), False, id="matrices without biases"),
        pytest.param(Memory, (2, 7, 16), True, id="a memory, open batch"),
        pytest.param(Memory, (2, 7, 16), False, id="a memory"),
    ],
)
def test_openvino_rounds_as_simulated(
    make: Callable[[], nn.Module], shape: tuple[int, ...], dynamic: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    found, expected = in_openvino(make(), x, tmp_path, dynamic_batch=dynamic)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


class Projected(nn.Module):
    """A layer that reads a parameter alone, as of relative positions."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table = nn.Linear(16, 8), nn.Parameter(torch.randn(5, 16))
        self.read = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.read(x) @ self.layer(self.table).T
        return result


def test_openvino_reads_a_layer_over_a_parameter_in_weight_only_files(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 16)
    quantized = quantize_weights(Projected().eval(), [x], bits=8)
    found, expected = run_in_openvino(quantized, x, tmp_path)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()

"""Means and convolutions take the form for which there is an integer kernel."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nncfx
from nncfx.export.ir.integer_weights import integer_weights
from nncfx.export.passes.integer_forms import (
    pad_in_pools,
    scale_after_products,
    use_global_pooling,
    use_matrix_products,
)
from nncfx.quantization import integer_arithmetic
from nncfx.runtimes import integer_kernels
from nncfx.targets import TARGETS
from onnx_files import operators, parsed, run_file

Q = "nncfx.FakeQuantize <axis = -1, quant_min = 0, quant_max = 255> (x, s, z)"


def mean_of(operand: str, axes: str, keepdims: int, shape: str) -> ir.Model:
    model = parsed(f"""
    g (float[1,4,2,2] x) => (float[{shape}] y)
    <float s = {{0.1}}, int32 z = {{0}}, int64[2] axes = {{{axes}}}>
    {{ a = {operand}
       y = ReduceMean <keepdims = {keepdims}> (a, axes) }}""")
    model.graph[0].outputs[0].shape = ir.Shape((1, 4, 2, 2))
    use_global_pooling(model.graph)
    return model


@pytest.mark.parametrize(
    ("keepdims", "shape", "expected"),
    [(1, "1,4,1,1", ["GlobalAveragePool"]), (0, "1,4", ["GlobalAveragePool", "Flatten"])],
)
def test_a_mean_over_the_image_is_a_pooling(
    keepdims: int, shape: str, expected: list[str]
) -> None:
    assert operators(mean_of(Q, "-1, 2", keepdims, shape))[1:] == expected


def test_other_means_stay() -> None:
    assert "ReduceMean" in operators(mean_of(Q, "1, 2", 1, "1,1,1,2"))
    assert "ReduceMean" in operators(mean_of("Exp (x)", "2, 3", 1, "1,4,1,1"))


@pytest.mark.parametrize(
    ("size", "expected"), [(1, ["Flatten", "Gemm", "Unsqueeze"]), (2, ["Conv"])]
)
def test_a_convolution_of_one_pixel_is_a_matrix_product(size: int, expected: list[str]) -> None:
    model = parsed(f"""
    g (float[1,2,{size},{size}] x) => (float[1,1,{size},{size}] y)
    <float s = {{0.1}}, int32 z = {{0}}, float[1,2,1,1] w = {{0.1, 0.2}}>
    {{ q = nncfx.FakeQuantize <axis = -1, quant_min = -127, quant_max = 127> (w, s, z)
       y = Conv <group = 1, pads = [0, 0, 0, 0]> (x, q) }}""")
    model.graph[0].outputs[0].shape = ir.Shape((1, 2, 1, 1))
    weights = integer_weights(model.graph, TARGETS["onnxruntime"])
    use_matrix_products(model.graph, weights)
    assert operators(model)[1:] == expected
    assert weights[0].integers.ndim == (2 if size == 1 else 4)


def test_tensors_that_are_not_quantized_are_scaled_before_their_product() -> None:
    model = parsed("""
    g (float[2,2] x) => (float[2,2] y) <float f = {0.5}> {
      q = Mul (x, f)
      k = Mul (x, f)
      y = MatMul (q, k) }""")
    scale_after_products(model.graph)
    assert operators(model) == ["Mul", "Mul", "MatMul"]


class Averaged(nn.Module):
    """An average that counts its padding, of what may be negative."""

    def __init__(self, pooling: nn.Module, *, joins: bool, has_relu: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        kind = nn.Conv1d if isinstance(pooling, nn.AvgPool1d) else nn.Conv2d
        self.first, self.pooling, self.last = kind(3, 4, 1), pooling, kind(8 if joins else 4, 4, 1)
        self.joins, self.has_relu = joins, has_relu

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y = y.relu() if self.has_relu else y
        return self.last(self.pooling(torch.cat([y, y * 2], 1) if self.joins else y))


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize(
    "pooling",
    [nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1, ceil_mode=True), nn.AvgPool1d(3, 1, 1)],
    ids=str,
)
def test_openvino_averages_zeros_as_zeros(
    pooling: nn.Module, tmp_path: Path, *, joins: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(
        (2, 3, 9) if isinstance(pooling, nn.AvgPool1d) else (2, 3, 9, 9), generator=generator
    )
    model = Averaged(pooling, joins=joins, has_relu=False).eval()
    quantized = nncfx.quantize(model, [x], target="openvino")
    path = nncfx.export_onnx(quantized, tmp_path / "m.onnx", x).path
    found = torch.from_numpy(run_file(path, x, "openvino")[0])
    expected = quantized(x)
    assert (found - expected).norm() < 1e-3 * expected.norm()


def test_averages_of_what_is_never_negative_stay_in_integers(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    model = Averaged(nn.AvgPool2d(3, 2, 1), joins=False, has_relu=True).eval()
    quantized = nncfx.quantize(model, [x], target="openvino")
    path = nncfx.export_onnx(quantized, tmp_path / "m.onnx", x).path
    assert "Max" not in {node.op_type for node in onnx.load(path).graph.node}


@pytest.mark.parametrize("is_quantized", [False, True])
@pytest.mark.parametrize("target", ["openvino", "onnxruntime"])
def test_circular_padding_runs(target: str, tmp_path: Path, *, is_quantized: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 9, 7)
    layers = [
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"),
        nn.CircularPad2d((2, 0, 0, 1)),
        nn.Conv2d(4, 4, 3),
    ]
    model: nn.Module = nn.Sequential(*layers).eval()
    if is_quantized:
        model = nncfx.quantize(model, [x], target=target)
    path = nncfx.export_onnx(model, tmp_path / "m.onnx", x, target).path
    found = torch.from_numpy(run_file(path, x, target)[0])
    expected = model(x)
    assert (found - expected).norm() < 5e-3 * expected.norm()


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


class PaddedPool(nn.Module):
    """A maximum pooling after a padding of its own, between convolutions."""

    def __init__(self, fill: float, pads: tuple[int, ...], pool: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fill, self.pads, self.pool = fill, pads, pool
        self.stem, self.head = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        padded = functional.pad(self.stem(x), self.pads, value=self.fill)
        return self.head(self.pool(padded))


_PIXELS = torch.randn(2, 3, 17, 18, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("fill", "pads", "pool", "is_taken"),
    [
        (-torch.inf, (0, 1, 1, 0), nn.MaxPool2d(3, 2), True),
        (-torch.inf, (1, 1, 1, 1), nn.MaxPool2d(3, 1, 1, dilation=2), True),
        (-1e9, (0, 1, 1, 0), nn.MaxPool2d(3, 2), False),
        (-torch.inf, (0, -1, 0, 1), nn.MaxPool2d(3, 2), False),
        (-torch.inf, (0, 1, 0, 1), nn.MaxPool2d(3, 2, ceil_mode=True), False),
    ],
)
def test_poolings_take_up_padding_with_minus_infinity(
    fill: float, pads: tuple[int, ...], pool: nn.Module, tmp_path: Path, *, is_taken: bool
) -> None:
    model = nncfx.quantize(PaddedPool(fill, pads, pool).eval(), [_PIXELS])
    path = nncfx.export_onnx(model, tmp_path / "m.onnx", _PIXELS).path
    assert ("Pad" not in {node.op_type for node in onnx.load(path).graph.node}) == is_taken
    assert integer_kernels(path, _PIXELS).operators["QLinearConv"] == 1 + is_taken
    with integer_arithmetic(model), torch.no_grad():
        expected = model(_PIXELS)
    assert torch.equal(torch.from_numpy(run_file(path, _PIXELS)[0]), expected)


def test_windows_of_padding_alone_keep_their_node() -> None:
    model = parsed("""
    g (float[1,1,4,4] x) => (float[1,1,3,3] y)
    <int64[8] pads = {0, 0, 0, 0, 0, 0, 2, 2}, float infinity = {-inf}>
    { p = Pad (x, pads, infinity)
      y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (p) }""")
    pad_in_pools(model.graph)
    assert operators(model) == ["Pad", "MaxPool"]
    assert model.graph[1].inputs[0] is model.graph[0].outputs[0]

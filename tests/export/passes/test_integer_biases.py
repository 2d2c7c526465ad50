"""Biases of integer layers are int32 in the scale of the products."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import nncfx
from nncfx.export.ir.graph_edits import constant_of
from nncfx.export.passes.integer_biases import add_integer_biases, separate_biases
from nncfx.quantization import QuantizeOptions, integer_arithmetic
from onnx_files import parsed, run_file

MODEL = """
g (uint8[1,2] x) => (float[1,2] y)
<float sx = {0.5}, uint8 zx = {0}, int8[2,2] w = {1, 2, 3, 4}, float[2] sw = {0.1, 0.2},
 int8[2] zw = {0, 0}, float[2] bias = {%s}>
{ a = %s
  b = DequantizeLinear <axis = 0> (w, sw, zw)
  y = Gemm <transB = 1> (a, b, bias) }
"""
INTEGER = "DequantizeLinear (x, sx, zx)"


def test_the_scale_is_that_of_the_products() -> None:
    model = parsed(MODEL % ("1.0, -1.02", INTEGER))
    add_integer_biases(model.graph)
    bias = model.graph[-1].inputs[2].producer()
    integers, scale = (constant_of(value) for value in bias.inputs)
    assert integers.dtype == "int32"
    assert integers.tolist() == [20, -10]
    assert scale.tolist() == pytest.approx([0.05, 0.1])


def test_many_scales_are_computed_in_the_file() -> None:
    text = """
    g (uint8[1,1] x) => (float[1,8] y)
    <float sx = {0.5}, uint8 zx = {0}, int8[8,1] w = {1, 2, 3, 4, 5, 6, 7, 8},
     float[8] sw = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}, int8[8] zw = {0, 0, 0, 0, 0, 0, 0, 0},
     float[8] bias = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0}>
    { a = DequantizeLinear (x, sx, zx)
      b = DequantizeLinear <axis = 0> (w, sw, zw)
      y = Gemm <transB = 1> (a, b, bias) }
    """
    model = parsed(text)
    add_integer_biases(model.graph)
    bias = model.graph[-1].inputs[2].producer()
    product = bias.inputs[1].producer()
    assert product.op_type == "Mul"
    assert [value.name for value in product.inputs] == ["sx", "sw"]
    # a bias of one in steps of half of each scale
    assert constant_of(bias.inputs[0]).tolist() == [20, 10, 7, 5, 4, 3, 3, 2]


def test_the_bias_of_a_float_layer_stays() -> None:
    model = parsed(MODEL % ("1.0, 1.0", "Cast <to = 1> (x)"))
    add_integer_biases(model.graph)
    assert model.graph[-1].inputs[2].name == "bias"


def test_the_scale_of_a_weight_grows_until_its_bias_fits() -> None:
    model = parsed(MODEL % (f"{2.0**33}, 1.0", INTEGER))
    add_integer_biases(model.graph)
    weight, bias = (one.producer() for one in model.graph[-1].inputs[1:])
    # 2 ** 33 is 2 ** 30 times 0.5, the scale of the input, times 16: 0.1 and 0.2 become nothing
    assert constant_of(weight.inputs[1]).tolist() == [16.0, pytest.approx(0.2)]
    assert constant_of(weight.inputs[0]).tolist() == [[0, 0], [3, 4]]
    assert constant_of(bias.inputs[0]).tolist() == [2**30, 10]


@pytest.mark.parametrize("shrink", [0.0, 1e-14])
def test_a_layer_with_a_dead_channel_runs_as_simulated(tmp_path: Path, shrink: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()).eval()
    with torch.no_grad():
        model[2].weight[3] *= shrink
        model[2].bias[3] = 2.0
    x = torch.randn(2, 3, 8, 8)
    quantized = nncfx.quantize(model, [x])
    file = nncfx.export_onnx(quantized, tmp_path / "dead.onnx", x)
    (found,) = run_file(file.path, x)
    with torch.no_grad(), integer_arithmetic(quantized):
        assert np.array_equal(found, quantized(x).numpy())
    assert found[:, 3] == pytest.approx(2.0, rel=0.01)


class Twins(nn.Module):
    """One network for two images; the size of the second is read as well, by `expand_as`."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 16))

    def forward(
        self, first: torch.Tensor, second: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        one, other = self.tower(first), self.tower(second)
        return one.sum(1, keepdim=True).expand_as(one), other


def test_openvino_adds_the_biases_of_a_layer_that_runs_twice(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(2, 1, 8, 8), torch.randn(2, 1, 8, 8))
    options = QuantizeOptions(overflow_fix="enable")
    model = nncfx.quantize(Twins().eval(), [inputs], target="openvino", options=options)
    path = nncfx.export_onnx(model, tmp_path / "m.onnx", inputs, target="openvino").path
    found = run_file(path, inputs, "openvino")
    with torch.no_grad(), integer_arithmetic(model):
        for one, expected in zip(found, model(*inputs), strict=True):
            np.testing.assert_allclose(one, expected.numpy(), atol=1e-2)


@pytest.mark.parametrize(("groups", "channels"), [(2, 4), (2, 20), (4, 16)])
def test_the_groups_of_a_transposed_convolution_share_their_scales(
    tmp_path: Path, groups: int, channels: int
) -> None:
    torch.manual_seed(0)
    upsampling = nn.ConvTranspose2d(16, channels, 2, 2, groups=groups)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), upsampling).eval()
    x = torch.randn(2, 3, 8, 8)
    quantized = nncfx.quantize(model, [x])
    file = nncfx.export_onnx(quantized, tmp_path / "m.onnx", x)
    (found,) = run_file(file.path, x)
    expected = quantized(x)
    # some inputs lie between two integers, and a bias of another channel would be off by far more
    assert (torch.as_tensor(found) - expected).norm() < 0.01 * expected.norm()


def test_a_bias_of_any_group_makes_room() -> None:
    text = """
    g (uint8[1,2,1,1] x) => (float[1,4,1,1] y)
    <float sx = {1.0}, uint8 zx = {0}, int8[2,2,1,1] w = {100, 50, 100, 50},
     float[2] sw = {1.0, 1.0}, int8[2] zw = {0, 0},
     float[4] bias = {1.0, 1.0, 4294967296.0, 1.0}>
    { a = DequantizeLinear (x, sx, zx)
      b = DequantizeLinear <axis = 1> (w, sw, zw)
      y = ConvTranspose <group = 2> (a, b, bias) }
    """
    model = parsed(text)
    add_integer_biases(model.graph)
    layer = model.graph[-1]
    integers, scale = (constant_of(value) for value in layer.inputs[2].producer().inputs)
    # 2^32 takes 30 bits in steps of 4, of the first scale of both groups
    assert scale.tolist() == [4, 1, 4, 1]
    assert integers.tolist() == [0, 1, 2**30, 1]


class TokensOfImages(nn.Module):
    """Convolutions, and a token beside what they make of each image."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(16, 16, 2, 2), nn.ReLU()
        )
        self.last = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.body(x).flatten(2).transpose(1, 2)
        result: torch.Tensor = self.last(
            torch.cat([self.token.expand(len(x), -1, -1), tokens], dim=1)
        )
        return result


class ImagesInTime(nn.Module):
    """A convolution before a recurrent layer, which begins with zeros for each image."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3))
        self.layer = nn.GRU(48, 16, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(self.body(x).permute(0, 3, 1, 2).flatten(2))[0]
        return result


@pytest.mark.parametrize("model", [TokensOfImages, ImagesInTime])
@pytest.mark.parametrize("count", [2, 5])
def test_openvino_adds_biases_where_the_number_of_images_is_read(
    model: Callable[[], nn.Module], count: int, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 3, 8, 8)
    quantized = nncfx.quantize(model().eval(), [x], target="openvino")
    path = tmp_path / "m.onnx"
    nncfx.export_onnx(quantized, path, x[:2], "openvino")
    (found,) = run_file(path, x[:count], "openvino")
    with torch.no_grad():
        expected = quantized(x[:count]).numpy()
    # sums in another order may round a few products to the next step
    assert np.linalg.norm(found - expected) < 1e-3 * np.linalg.norm(expected)


def test_biases_of_fixed_shapes_and_of_floats_stay_with_their_convolutions() -> None:
    text = """
    g (float[%s,2,4,4] x) => (%s[%s,3,4,4] y)
    <float[3,2,1,1] w = {1, 2, 3, 4, 5, 6}, float[3] bias = {1, 2, 3}, float s = {0.1},
     float[%s,3,4,4] z>
    { z = Conv (x, w, bias) y = %s }
    """
    quantizer = "QuantizeLinear (z, s)"
    for size, kind, behind, added in (
        ("2", "uint8", quantizer, []),
        ("n", "float", "Relu (z)", []),
        ("n", "uint8", quantizer, ["Add"]),
    ):
        model = parsed(text % (size, kind, size, size, behind))
        separate_biases(model.graph)
        assert [node.op_type for node in model.graph][1:-1] == added
    column = constant_of(model.graph[1].inputs[1])
    assert column.tolist() == [[[1]], [[2]], [[3]]]

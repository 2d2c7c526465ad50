"""Quantizers of activations move, merge and swallow clamps; no value changes."""

from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from torch import nn

from nncfx.export import export_onnx
from nncfx.export.passes.fusion import arrange_quantizers
from nncfx.quantization import integer_arithmetic, quantize
from onnx_files import QUANTIZER, operators, parsed, run_file, with_quantizers


def arranged(inputs: str, lines: str, outputs: str = "float[1,4,2,2] y") -> ir.Model:
    model = with_quantizers(lines, inputs, outputs)
    arrange_quantizers(model.graph)
    model.graph.sort()
    return model


def test_equal_quantizers_of_one_tensor_become_one() -> None:
    model = arranged("float[1,4,2,2] x", "a = Q(x, s, z)\n b = Q(x, s, z)\n y = Add (a, b)")
    assert operators(model) == ["FakeQuantize", "Add"]


def test_unequal_quantizers_of_one_tensor_stay() -> None:
    lines = "a = Q(x, s, z)\n b = Q(x, s, middle)\n y = Add (a, b)"
    assert operators(arranged("float[1,4,2,2] x", lines)).count("FakeQuantize") == 2


def test_a_quantizer_behind_its_equal_goes() -> None:
    model = arranged("float[1,4,2,2] x", "a = Q(x, s, z)\n b = Q(a, s, z)\n y = Neg (b)")
    assert operators(model) == ["FakeQuantize", "Neg"]


def test_a_quantizer_behind_its_equal_and_a_relu_goes() -> None:
    lines = "a = Q(x, s, z)\n h = Relu (a)\n b = Q(h, s, z)\n y = Neg (b)"
    assert operators(arranged("float[1,4,2,2] x", lines)) == ["FakeQuantize", "Neg"]


def test_a_quantizer_that_is_an_output_stays() -> None:
    model = arranged(
        "float[1,4,2,2] x",
        "a = Q(x, s, z)\n w = Neg (a)\n y = Q(x, s, z)",
        "float[1,4,2,2] w, float[1,4,2,2] y",
    )
    assert operators(model).count("FakeQuantize") == 2


def test_movements_are_done_on_integers() -> None:
    lines = "h = Exp (x)\n p = Transpose <perm = [0, 2, 3, 1]> (h)\n a = Q(p, s, z)\n y = Neg (a)"
    model = arranged("float[1,4,2,2] x", lines, "float[1,2,2,4] y")
    assert operators(model) == ["Exp", "FakeQuantize", "Transpose", "FakeQuantize", "Neg"]


def test_quantization_goes_on_behind_a_max_pooling() -> None:
    lines = "a = Q(x, s, z)\n p = MaxPool <kernel_shape = [2, 2]> (a)\n y = Neg (p)"
    model = arranged("float[1,4,2,2] x", lines, "float[1,4,1,1] y")
    assert operators(model) == ["FakeQuantize", "MaxPool", "FakeQuantize", "Neg"]


def test_the_places_of_maxima_are_not_quantized() -> None:
    lines = (
        "a = Q(x, s, z)\n p, i = MaxPool <kernel_shape = [2, 2]> (a)\n y = Neg (p)\n w = Abs (i)"
    )
    outputs = "float[1,4,1,1] y, int64[1,4,1,1] w"
    model = arranged("float[1,4,2,2] x", lines, outputs)
    assert operators(model) == ["FakeQuantize", "MaxPool", "FakeQuantize", "Neg", "Abs"]


@pytest.mark.parametrize(
    ("padding", "reader", "left"),
    [
        ("Pad (a, pads)", "Neg (p)", ["FakeQuantize", "Neg"]),
        ("Pad (a, pads, zero)", "Neg (p)", ["FakeQuantize", "Neg"]),
        ("Pad (a, pads, six)", "Neg (p)", ["Neg"]),
        ('Pad <mode = "edge"> (a, pads)', "Neg (p)", ["FakeQuantize", "Neg"]),
        ("Pad (a, pads)", "Conv (p, w)", ["Conv"]),
        ('Pad <mode = "reflect"> (a, pads)', "Conv (p, w)", ["FakeQuantize", "Conv"]),
    ],
)
def test_quantization_goes_on_behind_a_padding_that_no_convolution_makes_its_own(
    padding: str, reader: str, left: list[str]
) -> None:
    text = f"""
    g (float[1,4,2,2] x, float[4,4,1,1] w) => (float[1,4,4,2] y)
    <float s = {{0.1}}, int32 z = {{0}}, float zero = {{0.0}}, float six = {{6.0}},
     int64[8] pads = {{0, 0, 1, 0, 0, 0, 1, 0}}>
    {{ a = {QUANTIZER} (x, s, z)
       p = {padding}
       y = {reader} }}
    """
    model = parsed(text)
    arrange_quantizers(model.graph)
    assert operators(model) == ["FakeQuantize", "Pad", *left]


def test_a_movement_that_others_read_in_float_keeps_its_input() -> None:
    lines = """
    h = Exp (x)
    p = Transpose <perm = [0, 2, 3, 1]> (h)
    a = Q(p, s, z)
    w = Neg (h)
    y = Neg (a)
    """
    model = arranged("float[1,4,2,2] x", lines, "float[1,4,2,2] w, float[1,2,2,4] y")
    assert operators(model).index("Transpose") < operators(model).index("FakeQuantize")


@pytest.mark.parametrize(
    "order",
    [
        "p = MaxPool <kernel_shape = [2, 2]> (h)\n r = Relu (p)",
        "p = Relu (h)\n r = MaxPool <kernel_shape = [2, 2]> (p)",
    ],
)
def test_a_quantizer_moves_before_a_pooling_past_a_relu_that_it_implies(order: str) -> None:
    lines = f"h = Exp (x)\n {order}\n y = Q(r, s, z)"
    model = arranged("float[1,4,2,2] x", lines, "float[1,4,1,1] y")
    assert operators(model) == ["Exp", "FakeQuantize", "MaxPool", "FakeQuantize"]


def test_a_quantizer_with_scales_of_channels_stays_where_these_are() -> None:
    text = f"""
    g (float[1,4,2,2] x) => (float[1,2,2,4] y)
    <float[4] s = {{0.1, 0.2, 0.3, 0.4}}, int32[4] z = {{0, 0, 0, 0}}>
    {{ h = Exp (x)
       p = Transpose <perm = [0, 2, 3, 1]> (h)
       y = {QUANTIZER.replace("-1", "3")} (p, s, z) }}
    """
    model = parsed(text)
    arrange_quantizers(model.graph)
    assert operators(model) == ["Exp", "Transpose", "FakeQuantize"]


def test_a_quantizer_does_not_move_up_to_another() -> None:
    lines = "a = Q(x, s, z)\n b = Transpose <perm = [0, 2, 3, 1]> (a)\n y = Q(b, t, middle)"
    model = arranged("float[1,4,2,2] x", lines, "float[1,2,2,4] y")
    assert operators(model) == ["FakeQuantize", "Transpose", "FakeQuantize"]


@pytest.mark.parametrize("scale", ["s", "t"])
@pytest.mark.parametrize("is_output", [False, True])
def test_a_quantizer_moves_before_a_split_only_if_all_parts_have_its_grid(
    scale: str, is_output: bool
) -> None:
    lines = f"""
    h = Exp (x)
    b, c = Split <axis = 1, num_outputs = 2> (h)
    y = Q(b, s, z)
    w = Q(c, {scale}, z)
    """
    outputs = "float[1,2,2,2] y, float[1,2,2,2] w" + (", float[1,2,2,2] c" if is_output else "")
    model = arranged("float[1,4,2,2] x", lines, outputs)
    moves = scale == "s" and not is_output
    assert (operators(model).index("FakeQuantize") < operators(model).index("Split")) == moves


class Parts(nn.Module):
    """Linear attention: of one tensor's parts, two pass a ReLU and one does not."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Conv2d(8, 24, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).flatten(2).transpose(1, 2).chunk(3, dim=-1)
        mixed = q.relu() @ (k.relu().transpose(1, 2) @ v)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


def test_the_grid_of_one_part_is_not_that_of_the_others(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Parts().eval(), torch.randn(2, 8, 6, 6)
    quantized = quantize(model, [x])
    file = export_onnx(quantized, tmp_path / "parts.onnx", x)
    (found,) = run_file(file.path, x)
    with torch.no_grad(), integer_arithmetic(quantized):
        assert found == pytest.approx(quantized(x).numpy(), abs=1e-6)


class Spread(nn.Module):
    """What one layer reads in integers is read in float by something else as well."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.write = nn.Linear(8, 16), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        turned = self.read(x).reshape(-1, 4, 4).transpose(1, 2).reshape(-1, 8)
        turned = turned.float()  # an operation in torch, and none in the file
        return self.write(turned), turned.exp()


def test_a_quantizer_stays_behind_a_movement_that_others_read_in_float(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Spread().eval(), torch.randn(5, 8)
    quantized = quantize(model, [x])
    file = export_onnx(quantized, tmp_path / "spread.onnx", x)
    found = run_file(file.path, x)
    with torch.no_grad(), integer_arithmetic(quantized):
        for one, expected in zip(found, quantized(x), strict=True):
            assert one == pytest.approx(expected.numpy(), abs=1e-5)

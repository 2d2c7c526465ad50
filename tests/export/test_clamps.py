"""Quantizers swallow clamps, and clamps keep quantizers apart; no value changes."""

from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from nncfx.export import export_onnx
from nncfx.export.clamps import keep_quantizers_apart, remove_implied_clamps
from nncfx.runtimes import BuildOptions, runtime_named

Parse = Callable[[str], ir.Model]
Operators = Callable[[ir.Model], list[str]]

CONSTANTS = (
    "<float s = {0.1}, float t = {0.05}, int32 z = {0}, int32 middle = {128}, "
    "float six = {6.0}, float zero = {0.0}>"
)
Q = "nncfx.FakeQuantize <axis = -1, quant_min = 0, quant_max = 255>"


def clamped(parsed: Parse, lines: str) -> ir.Model:
    lines = lines.replace("Q(", Q + " (")
    model = parsed(f"g (float[1,4,2,2] x) => (float[1,4,2,2] y) {CONSTANTS} {{ {lines} }}")
    remove_implied_clamps(model.graph)
    keep_quantizers_apart(model.graph)
    model.graph.sort()
    return model


@pytest.mark.parametrize(
    ("clamp", "scale", "left"),
    [
        ("Relu (x)", "s, z", []),
        ("Relu (x)", "s, middle", ["Relu"]),
        ("Clip (x, zero, six)", "s, z", ["Clip"]),
        ("Clip (x, zero)", "s, z", []),
    ],
)
def test_a_clamp_goes_where_its_quantizer_implies_it(
    parsed: Parse, operators: Operators, clamp: str, scale: str, left: list[str]
) -> None:
    lines = f"h = {clamp}\n a = Q(h, {scale})\n y = Neg (a)"
    model = clamped(parsed, lines)
    assert operators(model) == [*left, "FakeQuantize", "Neg"]


def test_a_clip_at_the_end_of_the_grid_goes(parsed: Parse, operators: Operators) -> None:
    text = f"""
    g (float[4] x) => (float[4] y)
    <float s = {{0.02352941}}, int32 z = {{0}}, float six = {{6.0}}, float zero = {{0.0}}>
    {{ h = Clip (x, zero, six)
       a = {Q} (h, s, z)
       y = Neg (a) }}
    """
    model = parsed(text)
    remove_implied_clamps(model.graph)
    assert operators(model) == ["FakeQuantize", "Neg"]


def test_a_relu_that_others_read_stays(parsed: Parse, operators: Operators) -> None:
    lines = "h = Relu (x)\n a = Q(h, s, z)\n y = Add (a, h)"
    assert "Relu" in operators(clamped(parsed, lines))


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ("b = Q(a, s, middle)\n y = Neg (b)", ["Clip", "FakeQuantize", "Neg"]),
        ("h = Relu (a)\n b = Q(h, t, z)\n y = Neg (b)", ["Clip", "FakeQuantize", "Neg"]),
        ("b = Q(a, s, z)\n y = Neg (b)", ["FakeQuantize", "Neg"]),
        ("b = Q(a, s, middle)\n y = Add (a, b)", ["FakeQuantize", "Add"]),
    ],
)
def test_a_clamp_stands_between_two_quantizers_that_a_runtime_would_make_one(
    parsed: Parse, operators: Operators, lines: str, left: list[str]
) -> None:
    # not where the grids are equal or something else reads the first
    model = clamped(parsed, f"a = Q(x, s, z)\n {lines}")
    assert operators(model) == ["FakeQuantize", *left]


def test_a_clamp_between_quantizers_has_the_ends_of_the_second_grid(parsed: Parse) -> None:
    model = clamped(parsed, "a = Q(x, s, z)\n b = Q(a, t, middle)\n y = Neg (b)")
    clip = next(node for node in model.graph if node.op_type == "Clip")
    ends = [one.const_value.numpy().item() for one in clip.inputs[1:]]
    # 0.05 per step, 128 steps below zero and 127 above
    assert ends == pytest.approx([-6.4, 6.35])


def test_a_runtime_rounds_twice_where_the_model_does(
    tmp_path: Path, rounding: Callable[..., nn.Module]
) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 3, 1, bias=False)
    conv.weight.data = torch.randint(-9, 10, conv.weight.shape) / 8  # in integers as it is
    weight = rounding(torch.full((3,), 1 / 8), (-127, 127), axis=0)
    parametrize.register_parametrization(conv, "weight", weight)
    model = nn.Sequential(
        rounding(1 / 32, (0, 255), zero_point=128),
        conv,
        rounding(0.05, (0, 255), zero_point=132),
        nn.ReLU(),
        rounding(0.021, (0, 255)),
        nn.MaxPool2d(1),
    )
    x = torch.randn(2, 3, 16, 16)
    path = export_onnx(model.eval(), tmp_path / "m.onnx", x).path
    with runtime_named("onnxruntime").build(path, BuildOptions()) as session:
        (found,) = session.run(x)
    # a merged grid would have steps of 0.0206: differences of 0.01 and more
    with torch.no_grad():
        assert torch.allclose(model(x), torch.as_tensor(found), atol=1e-6)

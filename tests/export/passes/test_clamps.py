"""Quantizers swallow clamps, and clamps keep quantizers apart; no value changes."""

from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from typing_extensions import override

import nncfx
from nncfx.export import export_onnx
from nncfx.export.passes.clamps import (
    keep_quantizers_apart,
    remove_identities,
    remove_implied_clamps,
)
from nncfx.quantization import integer_arithmetic
from nncfx.runtimes import BuildOptions, integer_kernels, runtime_named
from onnx_files import QUANTIZER, operators, parsed, run_file, with_quantizers
from small_models import Rounding


def clamped(lines: str) -> ir.Model:
    model = with_quantizers(lines)
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
    clamp: str, scale: str, left: list[str]
) -> None:
    lines = f"h = {clamp}\n a = Q(h, {scale})\n y = Neg (a)"
    model = clamped(lines)
    assert operators(model) == [*left, "FakeQuantize", "Neg"]


def test_a_clip_at_the_end_of_the_grid_goes() -> None:
    model = parsed(f"""
    g (float[4] x) => (float[4] y)
    <float s = {{0.02352941}}, int32 z = {{0}}, float six = {{6.0}}, float zero = {{0.0}}>
    {{ h = Clip (x, zero, six)
       a = {QUANTIZER} (h, s, z)
       y = Neg (a) }}
    """)
    remove_implied_clamps(model.graph)
    assert operators(model) == ["FakeQuantize", "Neg"]


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("h = Mul (x, one)", []),
        ("h = Add (zero, x)", []),
        ("h = Div (x, one)", []),
        ("h = Div (one, x)", ["Div"]),
        ("h = Sub (zero, x)", ["Sub"]),
        ("h = Mul (x, zero)", ["Mul"]),
    ],
)
def test_arithmetic_that_changes_nothing_goes(line: str, left: list[str]) -> None:
    constants = "<float one = {1.0}, float zero = {0.0}>"
    body = f"{{ {line}\n y = Neg (h) }}"
    model = parsed(f"g (float[4] x) => (float[4] y) {constants} {body}")
    for value in (node.outputs[0] for node in model.graph):
        value.shape = ir.Shape([4])
    remove_identities(model.graph)
    assert operators(model) == [*left, "Neg"]


def test_a_relu_that_others_read_stays() -> None:
    lines = "h = Relu (x)\n a = Q(h, s, z)\n y = Add (a, h)"
    assert "Relu" in operators(clamped(lines))


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
    lines: str, left: list[str]
) -> None:
    # not where the grids are equal or something else reads the first
    model = clamped(f"a = Q(x, s, z)\n {lines}")
    assert operators(model) == ["FakeQuantize", *left]


def test_a_clamp_between_quantizers_has_the_ends_of_the_second_grid() -> None:
    model = clamped("a = Q(x, s, z)\n b = Q(a, t, middle)\n y = Neg (b)")
    clip = next(node for node in model.graph if node.op_type == "Clip")
    ends = [one.const_value.numpy().item() for one in clip.inputs[1:]]
    # 0.05 per step, 128 steps below zero and 127 above
    assert ends == pytest.approx([-6.4, 6.35])


def test_a_runtime_rounds_twice_where_the_model_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 3, 1, bias=False)
    conv.weight.data = torch.randint(-9, 10, conv.weight.shape) / 8  # in integers as it is
    weight = Rounding(torch.full((3,), 1 / 8), (-127, 127), axis=0)
    parametrize.register_parametrization(conv, "weight", weight)
    model = nn.Sequential(
        Rounding(1 / 32, (0, 255), zero_point=128),
        conv,
        Rounding(0.05, (0, 255), zero_point=132),
        nn.ReLU(),
        Rounding(0.021, (0, 255)),
        nn.MaxPool2d(1),
    )
    x = torch.randn(2, 3, 16, 16)
    path = export_onnx(model.eval(), tmp_path / "m.onnx", x).path
    (found,) = run_file(path, x)
    # a merged grid would have steps of 0.0206: differences of 0.01 and more
    with torch.no_grad():
        assert torch.allclose(model(x), torch.as_tensor(found), atol=1e-6)


class Joined(nn.Module):
    """A ReLU's outputs share their grid with numbers of both signs, beside which they stand."""

    def __init__(self, layer: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.positive, self.signed, self.joint = layer(8, 8), layer(8, 8), layer(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.joint(torch.cat([self.positive(x).relu(), self.signed(x)], 1))


KINDS: dict[str, Callable[[int, int], nn.Module]] = {
    "Linear": nn.Linear,
    "Conv2d": lambda count, filters: nn.Conv2d(count, filters, 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_whose_grid_reaches_beyond_its_relu_is_in_integers(
    kind: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 8) if kind == "Linear" else torch.randn(2, 8, 6, 6)
    quantized = nncfx.quantize(Joined(KINDS[kind]).eval(), [x])
    is_equal_in_integers(quantized, x, 3, tmp_path)


def test_a_convolution_whose_range_has_grown_beyond_its_relu6_is_in_integers(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU6(), nn.Conv2d(8, 8, 1)).eval()
    x = torch.randn(2, 8, 6, 6) * 20
    quantized = nncfx.quantize(model, [x])
    (clamped,) = (one.hook for one in quantized.nncf.hooks if "ReLU6" in str(one.site))
    clamped.set_range(torch.tensor(0.0), torch.tensor(6.5))
    is_equal_in_integers(quantized, x, 2, tmp_path)


class Turned(nn.Module):
    """Calls ReLU with the channels last, as delay networks for speakers do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(8, 8, 3), nn.Conv1d(8, 8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).transpose(1, 2).relu().transpose(1, 2))


class Gated(Turned):
    """Splits what ReLU reads from what a gate reads."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, gate = self.first(x).chunk(2, 1)
        return self.second(torch.cat([x.relu(), gate.sigmoid()], 1))


class Memory(nn.Module):
    """Joins a constant to what it computes, as a recurrent network's first step does."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.write = nn.Conv2d(8, 8, 1), nn.Conv2d(10, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.arange(72.0).reshape(1, 2, 6, 6).expand(len(x), -1, -1, -1) / 36 - 1
        return self.write(torch.cat([self.read(x).relu(), state], 1))


class Resampler(nn.Module):
    """Queries of its own read the input and themselves, as in Kosmos-2 and Perceiver."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.query, self.key = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 32)
        self.latent = nn.Parameter(torch.randn(4, 32))

    def queries(self) -> torch.Tensor:
        return self.latent

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        latent = self.queries().unsqueeze(0).expand(x.size(0), -1, -1)
        keys = self.key(torch.cat([self.into(x), latent], 1))
        return self.query(latent) @ keys.transpose(1, 2)


class Picking(Resampler):
    """Reads some of its queries, as RF-DETR does in evaluation; they are quantized as picked."""

    @override
    def queries(self) -> torch.Tensor:
        return self.latent[:3]


@pytest.mark.parametrize("dynamic_batch", [True, False])
@pytest.mark.parametrize("kind", [Resampler, Picking])
def test_a_parameter_that_is_repeated_and_joined_is_in_integers(
    tmp_path: Path, kind: type[Resampler], dynamic_batch: bool
) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 6, 16)
    model = nncfx.quantize(kind().eval(), [x])
    file = export_onnx(model, tmp_path / "m.onnx", x, dynamic_batch=dynamic_batch)
    assert integer_kernels(file.path, x).float == ()
    (found,) = run_file(file.path, x)
    with torch.no_grad(), integer_arithmetic(model):
        torch.testing.assert_close(torch.as_tensor(found), model(x), rtol=1e-5, atol=1e-5)


class Scaled(Turned):
    """Has a scale that nothing has trained, and joins with another range what it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.third = nn.Conv1d(16, 8, 1)
        self.one, self.zero = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.one * self.first(x).relu() + self.zero
        return self.third(torch.cat([y[..., 1:], self.second(y).sigmoid() * 3 - 1], 1))


@pytest.mark.parametrize(
    ("make", "shape", "layers"),
    [
        pytest.param(Gated, (4, 8, 40), 2, id="what is split before a ReLU is rounded whole"),
        # rounded in front of the ReLU as well, ONNX Runtime would make one grid of the two
        pytest.param(Turned, (4, 8, 40), 2, id="a ReLU behind a transposition is in a quantizer"),
        pytest.param(Memory, (2, 8, 6, 6), 2, id="what is joined with a constant"),
        pytest.param(Scaled, (2, 8, 9), 3, id="scales of one part no quantizers"),
    ],
)
def test_layers_around_clamps_compute_in_integers(
    make: Callable[[], nn.Module], shape: tuple[int, ...], layers: int, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    is_equal_in_integers(nncfx.quantize(make().eval(), [x]), x, layers, tmp_path)


def is_equal_in_integers(model: nn.Module, x: torch.Tensor, layers: int, folder: Path) -> None:
    file = export_onnx(model, folder / "clamped.onnx", x, dynamic_batch=False)
    kernels = integer_kernels(file.path, x)
    assert (len(kernels.integer), kernels.float) == (layers, ())
    (found,) = run_file(file.path, x)
    with torch.no_grad(), integer_arithmetic(model):
        assert (found == model(x).numpy()).all()


def test_tensorrt_builds_what_is_joined_with_a_constant(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx_bindings")
    x = torch.randn(2, 8, 6, 6)
    quantized = nncfx.quantize(Memory().eval(), [x], target="tensorrt")
    file = export_onnx(quantized, tmp_path / "m.onnx", x, target="tensorrt", dynamic_batch=False)
    options = BuildOptions(settings=(("computeCapability", "8.9"),))
    with runtime_named("tensorrt_rtx").build(file.path, options):
        pass  # it cannot run without a GPU

"""What no input changes is computed while exporting, and stored as it is quantized."""

from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nncfx.export import export_onnx
from onnx_files import assert_file_agrees
from small_models import Function, Rounding

STEP = 0.05
BYTE = (0, 255)


class Relative(nn.Module):
    """Scores against projected positions, as DeBERTa has them: a product of two constants."""

    def __init__(self, positions: int = 6, width: int = 8) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.positions = nn.Parameter(torch.randn(positions, width))
        self.projection = nn.Linear(width, 8)
        scale = self.projection.weight.detach().abs().amax(1) / 127
        self.weight_rounding = Rounding(scale, (-127, 127), axis=0)
        self.roundings = nn.ModuleList(Rounding(STEP, BYTE, zero_point=128) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight_rounding(self.projection.weight)
        projected = F.linear(self.roundings[0](self.positions), weight, self.projection.bias)
        return self.roundings[1](x) @ self.roundings[2](projected).T


class Parts(nn.Module):
    """Attention keeps its three weights in one parameter, and an adapter may be added to it."""

    def __init__(self, sizes: list[int] | None, *, is_computed: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        # so large that torch's exporter computes nothing of it
        self.weight = nn.Parameter(torch.randn(1200, 8) / 4)
        self.up, self.down = (nn.Parameter(torch.randn(one) / 4) for one in ((1200, 2), (2, 8)))
        self.roundings = nn.ModuleList(Rounding(STEP, BYTE, zero_point=128) for _ in range(4))
        self.sizes, self.is_computed = sizes, is_computed

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight + self.up @ self.down if self.is_computed else self.weight
        parts = weight.chunk(2) if self.sizes is None else weight.split(self.sizes)
        weights = zip(self.roundings[1:], parts, strict=False)
        rows = self.roundings[0](x)
        return torch.cat([F.linear(rows, Rounding(part)) for Rounding, part in weights], -1)


def inputs() -> Tensor:
    return torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("width", [8, 2])  # a product smaller, and larger, than its factors
def test_a_product_of_constants_is_one_constant(runtime: str, width: int, tmp_path: Path) -> None:
    model = Relative(24, width).eval()
    path = export_onnx(model, tmp_path / "m.onnx", inputs(), runtime).path
    graph = onnx.load(path).graph
    assert [node.op_type for node in graph.node].count("MatMul") == 1
    floats = [one.name for one in graph.initializer if one.data_type == 1 and len(one.dims) > 1]
    assert floats == []
    # products of bytes, exact in either; the values are those of the model's own rounding
    assert_file_agrees(path, model, inputs(), runtime, rtol=0, atol=1e-5)


def test_a_product_that_an_input_enters_is_left(tmp_path: Path) -> None:
    class Entered(Relative):
        def forward(self, x: Tensor) -> Tensor:
            return F.linear(self.roundings[0](self.positions + x[:1]), self.projection.weight)

    path = export_onnx(Entered().eval(), tmp_path / "m.onnx", inputs()).path
    assert {"MatMul", "Gemm"} & {node.op_type for node in onnx.load(path).graph.node}


def test_a_product_that_would_be_stored_in_float_is_left(tmp_path: Path) -> None:
    class WeightsAlone(Relative):
        def forward(self, x: Tensor) -> Tensor:
            weight = self.weight_rounding(self.projection.weight)
            return x @ F.linear(self.positions, weight).T

    path = export_onnx(WeightsAlone().eval(), tmp_path / "m.onnx", inputs()).path
    stored = {one.name: one.data_type for one in onnx.load(path).graph.initializer}
    assert stored["projection.weight"] == onnx.TensorProto.UINT8


@pytest.mark.parametrize("sizes", [[400, 800], [400, 200, 600], None])  # or two chunks
@pytest.mark.parametrize("is_computed", [False, True])
def test_parts_of_one_weight_are_stored_as_integers(
    sizes: list[int] | None, tmp_path: Path, *, is_computed: bool
) -> None:
    model = Parts(sizes, is_computed=is_computed).eval()
    path = export_onnx(model, tmp_path / "m.onnx", inputs()).path
    graph = onnx.load(path).graph
    assert "Split" not in [node.op_type for node in graph.node]
    assert [
        one.name for one in graph.initializer if one.data_type == 1 and len(one.dims) > 1
    ] == []
    assert_file_agrees(path, model, inputs(), rtol=0, atol=1e-5)


def test_a_quantizer_that_moves_up_to_a_constant_stores_it(tmp_path: Path) -> None:
    model = Function(
        lambda m, x: m.rounding(m.probe.repeat(x.shape[0], 1, 1)) @ x.unsqueeze(-1),
        probe=nn.Parameter(torch.linspace(-1, 1, 24).view(1, 3, 8)),
        rounding=Rounding(STEP, BYTE, zero_point=128),
    ).eval()
    path = export_onnx(model, tmp_path / "m.onnx", inputs()).path
    graph = onnx.load(path).graph
    assert [
        one.name for one in graph.initializer if one.data_type == 1 and len(one.dims) > 1
    ] == []
    stored = {one.name for one in graph.initializer}
    quantized = [node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"]
    assert not stored & set(quantized)
    assert_file_agrees(path, model, inputs(), rtol=0, atol=1e-5)

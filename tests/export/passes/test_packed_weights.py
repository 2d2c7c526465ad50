"""Weight-only models are written with packed integers, and compute what was simulated."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nncfx
from nncfx.export import export_onnx
from nncfx.quantization import quantize_weights
from onnx_files import run_file
from small_models import Rounding

LENGTH, OUTPUTS = 64, 24


class WeightOnly(nn.Module):
    """A linear layer and a table whose weights are rounded, by row or by blocks of 32."""

    def __init__(self, bits: int, *, blocks: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Parameter(torch.randn(10, LENGTH))
        self.weight = nn.Parameter(torch.randn(OUTPUTS, LENGTH))
        self.bias = nn.Parameter(torch.randn(OUTPUTS))
        self.length = 32 if blocks else LENGTH
        high = 2**bits - 1
        limits = (0, high) if blocks else (-(high // 2), high // 2)
        for name in ("table", "weight"):
            rows = getattr(self, name).detach().reshape(-1, self.length)
            scale = 2 * rows.abs().amax(1) / (high - 1)
            zero_point = high // 2 + 1 if blocks else 0
            hook = Rounding(scale, limits, zero_point=zero_point, axis=0)
            setattr(self, f"{name}_rounding", hook)

    def rounded(self, name: str) -> torch.Tensor:
        weight = getattr(self, name)
        rows = weight.reshape(-1, self.length)
        return getattr(self, f"{name}_rounding")(rows).view_as(weight)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        rows = F.embedding(indices, self.rounded("table"))
        return F.linear(rows, self.rounded("weight"), self.bias)


def exported(model: nn.Module, folder: Path, target: str) -> tuple[Path, np.ndarray, np.ndarray]:
    indices = torch.tensor([[1, 2, 3], [7, 7, 0]])
    path = export_onnx(model, folder / "m.onnx", indices, target).path
    (outputs,) = run_file(path, indices)
    return path, outputs, model(indices).detach().numpy()


@pytest.mark.parametrize(("bits", "blocks"), [(8, False), (4, True)])
def test_packed_products_are_those_simulated(tmp_path: Path, bits: int, blocks: bool) -> None:
    path, outputs, expected = exported(WeightOnly(bits, blocks=blocks), tmp_path, "onnxruntime")
    assert "MatMulNBits" in [node.op_type for node in onnx.load(path).graph.node]
    # Inputs are rounded to 127 steps of their largest as they are multiplied.
    assert np.abs(outputs - expected).max() <= 0.5 / 127 * LENGTH * 3.5 * 3.5 / 4


def test_blocks_of_a_table_are_looked_up_packed(tmp_path: Path) -> None:
    path, _, _ = exported(WeightOnly(4, blocks=True), tmp_path, "onnxruntime")
    assert "GatherBlockQuantized" in [node.op_type for node in onnx.load(path).graph.node]


def test_rows_of_a_table_are_looked_up_as_integers(tmp_path: Path) -> None:
    path, _, _ = exported(WeightOnly(8, blocks=False), tmp_path, "openvino")
    graph = onnx.load(path).graph
    [table] = [one for one in graph.initializer if list(one.dims) == [10, LENGTH]]
    [reader] = [node for node in graph.node if table.name in node.input]
    assert (table.data_type, reader.op_type) == (onnx.TensorProto.INT8, "Gather")


def test_other_targets_get_int4_in_blocks(tmp_path: Path) -> None:
    path, _, _ = exported(WeightOnly(4, blocks=True), tmp_path, "openvino")
    graph = onnx.load(path).graph
    assert onnx.TensorProto.UINT4 in {one.data_type for one in graph.initializer}
    assert "MatMulNBits" not in [node.op_type for node in graph.node]


class SharedWeight(nn.Module):
    """Two layers, one of which has a bias, that read one matrix, rounded by row."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(LENGTH, LENGTH) / 8)
        self.bias = nn.Parameter(torch.randn(LENGTH))
        self.rounding = Rounding(self.weight.detach().abs().amax(1) / 127, (-127, 127), axis=0)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        rows = torch.tanh(F.linear(rows, self.rounding(self.weight)))
        return F.linear(rows, self.rounding(self.weight), self.bias)


def test_layers_that_share_a_weight_are_packed_and_share_its_integers(tmp_path: Path) -> None:
    model, rows = SharedWeight().eval(), torch.randn(3, 5, LENGTH)
    path = export_onnx(model, tmp_path / "m.onnx", rows).path
    graph = onnx.load(path).graph
    products = [node for node in graph.node if node.op_type == "MatMulNBits"]
    assert len(products) == 2
    assert products[0].input[1:3] == products[1].input[1:3]
    assert "MatMul" not in [node.op_type for node in graph.node]
    (outputs,) = run_file(path, rows)
    expected = model(rows).detach().numpy()
    # 8 bits of inputs, twice: half a step of 1/127 of the largest, 64 products of deviation 1/8
    assert np.abs(outputs - expected).std() <= 2 * 3.5 / 127 / np.sqrt(12) * 1.5


class Blocks(nn.Module):
    """A linear layer of blocks of 32 in 4 bits, of which each has a zero point of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(OUTPUTS, LENGTH) + torch.randn(OUTPUTS, 1))
        low, high = self.weight.detach().reshape(-1, 32).aminmax(dim=1)
        scale = (high.clamp(min=0) - low.clamp(max=0)) / 15
        self.rounding = Rounding(
            scale, (0, 15), zero_point=(-low.clamp(max=0) / scale).round(), axis=0
        )

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        weight = self.rounding(self.weight.reshape(-1, 32)).view_as(self.weight)
        return F.linear(rows, weight)


class BlocksOfOutputs(Blocks):
    """A product with a matrix in which neighbouring outputs share a scale, not inputs."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        weight = self.rounding(self.weight.reshape(-1, 32)).view_as(self.weight)
        return F.linear(rows, weight.T, torch.ones(LENGTH))


class Factor(nn.Module):
    """A product in which a rounded matrix stands where `place` says."""

    def __init__(self, place: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(LENGTH, LENGTH))
        self.bias = nn.Parameter(torch.randn(LENGTH, LENGTH))
        self.rounding = Rounding(self.weight.detach().abs().max() / 127, (-127, 127))
        self.place = place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.rounding(self.weight)
        if self.place == "left":
            return weight @ x
        return x @ weight if self.place == "right" else torch.addmm(self.bias, x, weight)


def products(model: nn.Module, x: torch.Tensor, folder: Path) -> tuple[list[str], float]:
    """Return the operators of products in the file, and how far it is from `model`."""
    path = export_onnx(model.eval(), folder / "m.onnx", x, dynamic_batch=False).path
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    (outputs,) = run_file(path, x)
    found = [one for one in kinds if one in {"Gemm", "MatMul", "MatMulNBits"}]
    return found, float(np.abs(outputs - model(x).detach().numpy()).max())


def test_blocks_have_zero_points_of_their_own(tmp_path: Path) -> None:
    # one number in each block of inputs, which their own 8 bits hold exactly
    x = torch.zeros(1, LENGTH)
    x[0, ::32] = 1.0
    kinds, error = products(Blocks(), x, tmp_path)
    assert kinds == ["MatMulNBits"]
    assert error < 1e-5


def test_a_weight_that_is_read_both_ways_is_packed_where_its_scales_fit(tmp_path: Path) -> None:
    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.encode = nn.Linear(64, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(self.encode(x).relu(), self.encode.weight.t())

    x = torch.randn(8, 64)
    model = quantize_weights(Autoencoder(), example_inputs=x, bits=8)
    kinds, error = products(model, x, tmp_path)
    assert kinds == ["MatMulNBits", "Gemm"]
    assert error < 0.02


def test_blocks_of_outputs_are_not_packed(tmp_path: Path) -> None:
    kinds, error = products(BlocksOfOutputs(), torch.eye(OUTPUTS), tmp_path)
    assert kinds == ["Gemm"]
    assert error < 1e-5


@pytest.mark.parametrize(
    ("place", "expected"),
    [("left", "MatMul"), ("right", "MatMulNBits"), ("beside a matrix", "Gemm")],
)
def test_only_products_from_the_right_with_at_most_a_vector_are_packed(
    tmp_path: Path, place: str, expected: str
) -> None:
    kinds, error = products(Factor(place), torch.eye(LENGTH), tmp_path)
    assert kinds == [expected]
    assert error < 1e-5


def test_beside_quantized_activations_products_of_floats_stay_such(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    config = {
        "algorithm": "quantization",
        "activations": {"ignored_scopes": ["Sequential/Linear[2]/linear_0"]},
    }
    _, quantized = nncfx.create_compressed_model(
        nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 4)).eval(),
        {"compression": config},
        x,
        calibration_batches=[x],
    )
    file = export_onnx(quantized, tmp_path / "model.onnx", x)
    products = [one for one in onnx.load(file.path).graph.node if one.op_type == "MatMulNBits"]
    assert products
    (computed,) = run_file(file.path, x)
    simulated = quantized(x)
    assert (torch.from_numpy(computed) - simulated).norm() < 1e-3 * simulated.norm()

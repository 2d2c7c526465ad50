"""A model that fakes quantization becomes a file that computes the same in integers."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx.errors import ExportError
from nncfx.export import export_onnx
from nncfx.network import wrap
from nncfx.quantization import quantize, quantize_weights
from nncfx.runtimes import integer_kernels
from nncfx.tracing import Insertion, Priority, WeightSite
from onnx_files import run_file
from small_models import Function, Rounding

STEP = 0.05


class Quantized(nn.Module):
    """Everything of a residual network that runtimes fuse, quantized by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)
        for name, layer in list(self.named_children()):
            if name != "norm":
                largest = layer.weight.detach().flatten(1).abs().amax(1)
                setattr(self, f"{name}_weight", Rounding(largest / 127, (-127, 127), axis=0))
        self.input_q = Rounding(STEP, (0, 255), zero_point=128)
        self.positive_q = Rounding(STEP, (0, 255))
        self.body_q = Rounding(STEP, (0, 255), zero_point=100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.conv2d(self.input_q(x), self.stem_weight(self.stem.weight), padding=1)
        x = self.positive_q(F.max_pool2d(torch.relu(self.norm(x)), 2))
        y = F.conv2d(x, self.body_weight(self.body.weight), self.body.bias, padding=1)
        x = self.positive_q(torch.relu(x + self.body_q(y)))
        x = self.positive_q(x.mean((2, 3)))
        return F.linear(x, self.head_weight(self.head.weight), self.head.bias)


@pytest.fixture(scope="module")
def quantized() -> nn.Module:
    torch.manual_seed(0)
    model = Quantized()
    model.norm.weight.data.uniform_(-1, 1)  # negative ones turn the integers round
    model.norm.bias.data.normal_()
    model.norm.running_mean.normal_()
    model.norm.running_var.uniform_(0.5, 1)
    return model.eval()


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def file(
    quantized: nn.Module, images: torch.Tensor, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return export_onnx(quantized, tmp_path_factory.mktemp("qdq") / "m.onnx", images).path


def initializers(path: Path) -> dict[str, Any]:
    return {one.name: one for one in onnx.load(path).graph.initializer}


def test_the_file_computes_what_the_simulation_computes(
    file: Path, quantized: nn.Module, images: torch.Tensor
) -> None:
    # A value half way between two integers may fall to either side, once in the last feature
    # that the head reads: one step, times the largest weight of the head.
    bound = STEP * quantized.head.weight.abs().max().item()
    assert np.abs(run_file(file, images)[0] - quantized(images).detach().numpy()).max() <= bound


def test_every_layer_runs_in_integers(file: Path, images: torch.Tensor) -> None:
    kernels = integer_kernels(file, images)
    assert len(kernels.integer) == 3
    assert kernels.float == ()


def test_sums_and_poolings_run_in_integers_and_one_conversion_is_left(
    file: Path, images: torch.Tensor
) -> None:
    kernels = integer_kernels(file, images)
    assert {"QLinearAdd", "QLinearGlobalAveragePool"} <= set(kernels.operators)
    assert kernels.conversions == 1


def test_no_batch_norm_and_no_clamp_is_left(file: Path) -> None:
    found = Counter(node.op_type for node in onnx.load(file).graph.node)
    assert found["BatchNormalization"] == found["Relu"] == 0


def test_weights_are_stored_as_bytes_and_never_in_float(file: Path) -> None:
    kinds = Counter(
        one.data_type for one in initializers(file).values() if len(one.dims) in (2, 4)
    )
    assert kinds == {onnx.TensorProto.INT8: 3}


def test_biases_are_stored_as_int32(file: Path) -> None:
    graph, stored = onnx.load(file).graph, initializers(file)
    biases = {
        name
        for node in graph.node
        if node.op_type in ("Conv", "Gemm")
        for source in graph.node
        if node.input[2] in source.output
        for name in source.input[:1]
    }
    assert [stored[name].data_type for name in biases] == [onnx.TensorProto.INT32] * 3


def test_nodes_belong_to_the_layers_whose_weights_they_read(
    quantized: nn.Module, images: torch.Tensor, tmp_path: Path
) -> None:
    model = wrap(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()), images)
    hook = type(quantized.input_q)(torch.full((4,), 0.01), (-127, 127), axis=0)
    model.nncf.register([Insertion(WeightSite("0", "weight"), hook, Priority.QUANTIZATION, "q")])
    model.nncf.commit()
    result = export_onnx(model, tmp_path / "m.onnx", images)
    graph = onnx.load(result.path).graph
    (conv,) = (node for node in graph.node if node.op_type == "Conv")
    (weight,) = (node for node in graph.node if node.output[0] == conv.input[1])
    assert weight.op_type == "Mul"  # of its integers and their scale, which the runtime folds
    assert result.modules[weight.name] == result.modules[weight.output[0]] == "0"


def test_tensorrt_gets_symmetric_int8_and_float_biases(
    quantized: nn.Module, images: torch.Tensor, tmp_path: Path
) -> None:
    path = export_onnx(quantized, tmp_path / "m.onnx", images, "tensorrt").path
    graph = onnx.load(path).graph
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    zero_points = [
        constants[node.input[2]]
        for node in graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and len(node.input) > 2
    ]
    assert len(zero_points) > 2 * 3
    assert all(one.dtype == np.int8 and not one.any() for one in zero_points)
    # int8 covers 255 steps of an unsigned tensor with 127: about two of its steps in one
    bound = 3 * 2 * STEP * quantized.head.weight.abs().sum(1).max().item()
    assert np.abs(run_file(path, images)[0] - quantized(images).detach().numpy()).max() <= bound


def test_a_mask_on_a_large_weight_is_stored_within_it(tmp_path: Path) -> None:
    masked = Function(
        lambda m, x: F.linear(x, m.rounding(m.weight * m.mask)),
        weight=nn.Parameter(torch.randn(1024, 1024)),
        mask=nn.Parameter((torch.rand(1024, 1024) > 0.5).float(), requires_grad=False),
        rounding=Rounding(torch.full((1024,), 0.03), (-127, 127), axis=0),
    )
    path = export_onnx(masked, tmp_path / "m.onnx", torch.randn(2, 1024)).path
    # 32 integers share a scale of four bytes
    assert path.stat().st_size < (1 + 4 / 32 + 0.01) * 1024 * 1024


def test_four_bits_of_an_activation_stay_four_bits(tmp_path: Path) -> None:
    model = nn.Sequential(Rounding(1.0, (0, 15)), nn.Identity())
    x = torch.tensor([[-3.0, 7.2, 99.0]])
    path = export_onnx(model, tmp_path / "m.onnx", x, dynamic_batch=False).path
    assert run_file(path, x)[0].tolist() == [[0.0, 7.0, 15.0]]


@pytest.mark.parametrize(
    ("ends", "is_clipped"), [((0, 255), False), ((0, 254), True), ((1, 255), True)]
)
def test_only_integers_that_the_file_has_and_the_model_has_not_are_clipped(
    tmp_path: Path, ends: tuple[int, int], is_clipped: bool
) -> None:
    model = nn.Sequential(Rounding(1.0, ends, zero_point=ends[0]), nn.Identity())
    x = torch.tensor([[-3.0, 7.2, 299.0]])
    path = export_onnx(model, tmp_path / "m.onnx", x).path
    assert ("Clip" in {node.op_type for node in onnx.load(path).graph.node}) == is_clipped
    assert run_file(path, x)[0].tolist() == model(x).tolist()


@pytest.mark.parametrize("ends", [(-2047, 2047), (0, 32767), (0, 4095)])
def test_integers_of_more_than_8_bits_run(tmp_path: Path, ends: tuple[int, int]) -> None:
    """ONNX Runtime has no Clip of 16 bits."""
    model = nn.Sequential(Rounding(0.5, ends), nn.Identity())
    x = torch.tensor([[-3e4, -3.2, 0.2, 7.3, 2e3, 3e4]])
    path = export_onnx(model, tmp_path / "m.onnx", x).path
    assert run_file(path, x)[0].tolist() == model(x).tolist()


def test_an_activation_that_is_signed_or_not_is_stored_as_unsigned_bytes(tmp_path: Path) -> None:
    """Signed weights by unsigned activations have a kernel everywhere."""
    for ends in ((0, 127), (-64, 63)):
        model = nn.Sequential(Rounding(1.0, ends), nn.Identity())
        path = export_onnx(model, tmp_path / "m.onnx", torch.zeros(1, 3)).path
        stored = initializers(path)
        (kind,) = (
            stored[node.input[2]].data_type
            for node in onnx.load(path).graph.node
            if node.op_type == "QuantizeLinear"
        )
        assert kind == onnx.TensorProto.UINT8


@pytest.mark.parametrize(
    ("ends", "is_clipped"),
    [((-127, 127), False), ((-126, 127), True), ((-127, 126), True), ((-128, 127), False)],
)
def test_that_the_least_of_int8_lacks_is_no_reason_to_clip(
    tmp_path: Path, ends: tuple[int, int], is_clipped: bool
) -> None:
    """TensorRT takes int8 alone, and the least of its integers differs by one step at the end."""
    model = nn.Sequential(Rounding(1.0, ends), nn.Identity())
    path = export_onnx(model, tmp_path / "m.onnx", torch.zeros(1, 3), "tensorrt").path
    assert ("Clip" in {node.op_type for node in onnx.load(path).graph.node}) == is_clipped


@pytest.mark.parametrize(("target", "is_left"), [("onnxruntime", False), ("tensorrt", True)])
def test_a_clamp_before_a_wider_grid_goes_only_where_it_would_keep_a_layer_in_float(
    tmp_path: Path, target: str, is_left: bool
) -> None:
    x = torch.randn(1, 3, 6, 6, generator=torch.Generator().manual_seed(3))
    model = Function(
        lambda m, x: m.input_q(
            F.relu(F.conv2d(m.input_q(x), m.weight_q(m.conv.weight), m.conv.bias))
        ),
        conv=nn.Conv2d(3, 5, 3),
        input_q=Rounding(STEP, (-127, 127)),
        weight_q=Rounding(torch.full((5,), 0.01), (-127, 127), axis=0),
    ).eval()
    path = export_onnx(model, tmp_path / "m.onnx", x, target).path
    assert ("Relu" in {node.op_type for node in onnx.load(path).graph.node}) == is_left
    assert np.abs(run_file(path, x)[0] - model(x).detach().numpy()).max() <= STEP


def test_queries_and_keys_on_a_grid_are_multiplied_in_integers(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 4, 8, generator=torch.Generator().manual_seed(2))
    model = Function(
        lambda m, x: F.scaled_dot_product_attention(m.query_q(x), m.key_q(2 * x), x),
        query_q=Rounding(STEP, (0, 255), zero_point=128),
        key_q=Rounding(STEP, (0, 255), zero_point=120),
    ).eval()
    file = export_onnx(model, tmp_path / "attention.onnx", x).path
    kernels = integer_kernels(file, x)
    assert (len(kernels.integer), len(kernels.float)) == (1, 1)
    assert np.allclose(run_file(file, x)[0], model(x).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("target", "operator"), [("onnxruntime", "Gemm"), ("openvino", "Conv"), ("tensorrt", "Gemm")]
)
def test_a_convolution_of_one_pixel_has_the_form_that_ends_in_float(
    tmp_path: Path, target: str, operator: str
) -> None:
    head = Function(
        lambda m, x: F.conv2d(m.input_q(x), m.weight_q(m.conv.weight), m.conv.bias).flatten(1),
        conv=nn.Conv2d(8, 5, 1),
        input_q=Rounding(STEP, (-127, 127)),
        weight_q=Rounding(torch.full((5,), 0.01), (-127, 127), axis=0),
    )
    x = torch.randn(2, 8, 1, 1)
    file = export_onnx(head.eval(), tmp_path / "head.onnx", x, target=target).path
    found = [one.op_type for one in onnx.load(file).graph.node]
    assert operator in found


def test_a_range_that_is_not_frozen_is_refused(tmp_path: Path) -> None:
    class Open(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            zero = torch.zeros((), dtype=torch.int32)
            return torch.fake_quantize_per_tensor_affine(x, x.abs().max() / 127, zero, -127, 127)

    with pytest.raises(ExportError, match="computes its scale or zero point from the input"):
        export_onnx(Open(), tmp_path / "m.onnx", torch.randn(2, 3))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("weights_alone", [False, True])
def test_a_float64_model_is_written_in_float32(tmp_path: Path, weights_alone: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).double(), torch.randn(4, 8).double()
    quantized = quantize_weights(model, [x]) if weights_alone else quantize(model, [x])
    file = export_onnx(quantized, tmp_path / "m.onnx", x)
    assert "double" not in onnx.printer.to_text(onnx.load(file.path))
    found = torch.from_numpy(run_file(file, x.float())[0])
    with torch.no_grad():
        expected = quantized(x)
    # half a step of an integer bias; ONNX Runtime multiplies groups by bytes of inputs
    assert (found - expected).abs().max() < (1 / 64 if weights_alone else 5e-5)

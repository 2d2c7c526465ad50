"""A weight that the forward computes from parameters is quantized like a parameter."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

import nncfx
from nncfx.export import export_program
from nncfx.quantization import QuantizeOptions, integer_arithmetic, plan_quantizers
from nncfx.runtimes import integer_kernels
from nncfx.targets import hardware_named
from nncfx.tracing.record.constant_operands import constant_operands
from onnx_files import run_file


class Standardized(nn.Conv2d):
    """As in weight-standardized networks: by a batch norm of the weight."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.computed(), self.bias)

    def computed(self) -> Tensor:
        rows = self.weight.reshape(1, self.out_channels, -1)
        return F.batch_norm(rows, None, None, training=True, eps=1e-5).reshape_as(self.weight)


class Sliced(nn.Conv2d):
    """As octave convolutions and supernets read a part of one weight."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.computed(), self.bias)

    def computed(self) -> Tensor:
        return torch.cat([self.weight[4:], self.weight[:4]])


class Adapted(nn.Linear):
    """A linear layer with an adapter of low rank."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.down = nn.Parameter(torch.randn(2, inputs) / 4)
        self.up = nn.Parameter(torch.randn(outputs, 2) / 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.computed(), self.bias)

    def computed(self) -> Tensor:
        return self.weight + self.up @ self.down


class Merged(nn.Conv2d):
    """As RepVGG's branches, merged as they run; of rows that differ in size."""

    def __init__(self, *shape: int) -> None:
        super().__init__(*shape)
        sizes = 0.1 ** torch.arange(8.0).view(-1, 1, 1, 1)
        self.point = nn.Parameter(torch.randn(8, 8, 1, 1) * sizes)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.computed(), self.bias)

    def computed(self) -> Tensor:
        return 1.5 * self.weight + F.pad(2 * self.point, (1, 1, 1, 1))


class Symmetric(nn.Linear):
    """As in torch's tutorial on parametrizations, with a soft mask."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.computed(), self.bias)

    def computed(self) -> Tensor:
        mirrored = self.weight.triu() + self.weight.triu(1).mT
        return mirrored.tanh() * self.weight.exp()


class Normed(nn.Module):
    """With torch's weight norm."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = weight_norm(nn.Conv2d(8, 8, 3))
        self.bias = self.layer.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)

    def computed(self) -> Tensor:
        return self.layer.weight


class Blur(nn.Module):
    """A low-pass filter in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("filter", torch.tensor([1.0, 2.0, 1.0]).outer(torch.ones(3)) / 12)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.filter.expand(8, 1, 3, 3), groups=8)


class Filtered(nn.Module):
    """A depthwise convolution whose weight is a buffer itself."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("filter", torch.randn(8, 1, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.filter, groups=8)


LAYERS: dict[str, Any] = {
    "standardized": lambda: Standardized(8, 8, 3),
    "sliced": lambda: Sliced(8, 8, 3),
    "normed": Normed,
    "adapted": lambda: Adapted(8, 8),
    "merged": lambda: Merged(8, 8, 3),
    "symmetric": lambda: Symmetric(8, 8),
}


def twins(kind: str) -> tuple[nn.Sequential, nn.Sequential, Tensor]:
    """Return a model with a computed weight, one with the same values as a parameter, inputs."""
    torch.manual_seed(0)
    middle = LAYERS[kind]()
    is_linear = isinstance(middle, nn.Linear)
    make: Any = (lambda: nn.Linear(8, 8)) if is_linear else (lambda: nn.Conv2d(8, 8, 3))
    model = nn.Sequential(make(), nn.ReLU(), middle, nn.ReLU(), make()).eval()
    plain = copy.deepcopy(model)
    plain[2] = make()
    with torch.no_grad():
        plain[2].weight.copy_(middle.computed())
        plain[2].bias.copy_(middle.bias)
    return model, plain, torch.randn((6, 8) if is_linear else (2, 8, 10, 10))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("weight_bits", [8, 4])
def test_it_is_quantized_like_a_parameter(kind: str, weight_bits: int) -> None:
    model, plain, x = twins(kind)
    computed, expected = (
        nncfx.quantize(one, [x], preset="fast", weight_bits=weight_bits) for one in (model, plain)
    )
    with torch.no_grad():
        assert torch.equal(computed(x), expected(x))


@pytest.mark.parametrize("kind", LAYERS)
def test_onnx_runtime_multiplies_its_integers(kind: str, tmp_path: Path) -> None:
    model, _, x = twins(kind)
    quantized = nncfx.quantize(model, [x])
    file = nncfx.export_onnx(quantized, tmp_path / "computed.onnx", x)
    assert not integer_kernels(file.path, x).float
    (found,) = run_file(file.path, x)
    with torch.no_grad(), integer_arithmetic(quantized):
        expected = quantized(x).numpy()
    assert np.mean(np.abs(found - expected) > 1e-6 * np.abs(expected).max()) == 0


def test_the_file_holds_bytes_of_it_only(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Standardized(64, 64, 3), nn.ReLU()).eval()
    x = torch.randn(1, 64, 6, 6)
    file = nncfx.export_onnx(nncfx.quantize(model, [x]), tmp_path / "bytes.onnx", x)
    weights = model[0].weight.numel()  # type: ignore[union-attr, operator]  # a convolution
    assert weights < file.size_bytes < 1.2 * weights


@pytest.mark.parametrize("kind", LAYERS)
def test_a_program_holds_its_integers(kind: str) -> None:
    model, _, x = twins(kind)
    quantized = nncfx.quantize(model, [x])
    program = export_program(quantized, x)
    targets = [str(one.target) for one in program.graph.nodes]
    assert sum("dequantize_per_channel" in one for one in targets) == 3
    assert not any("fake_quantize" in one for one in targets)
    with torch.no_grad():
        assert program.module()(x).numpy() == pytest.approx(quantized(x).numpy(), abs=0.05)


@pytest.mark.parametrize("kind", [Blur, Filtered])
def test_a_buffer_is_a_weight(kind: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), kind(), nn.ReLU()).eval()
    x = torch.randn(2, 3, 10, 10)
    quantized = nncfx.quantize(model, [x])
    file = nncfx.export_onnx(quantized, tmp_path / "filter.onnx", x)
    kernels = integer_kernels(file.path, x)
    assert (len(kernels.integer), kernels.float) == (2, ())
    with torch.no_grad():
        expected = quantized(x)
    saved = nncfx.save(tmp_path / "filter.pt", quantized)
    fresh = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), kind(), nn.ReLU()).eval()
    _, loaded = nncfx.load(saved, fresh, x)
    with torch.no_grad():
        assert torch.equal(loaded.eval()(x), expected)


def test_other_ranges_are_found_for_it_too() -> None:
    model, plain, x = twins("standardized")
    options = QuantizeOptions(weight_range=nncfx.quantization.RangeRequest(method="mse"))
    computed, expected = (
        nncfx.quantize(one, [x], preset="fast", options=options) for one in (model, plain)
    )
    with torch.no_grad():
        assert torch.equal(computed(x), expected(x))


def test_training_moves_the_parameter_behind_it() -> None:
    model, _, x = twins("standardized")
    config = {
        "input_info": {"sample_size": list(x.shape)},
        "compression": {
            "algorithm": "quantization",
            "initializer": {"range": {"num_init_samples": 0}},
        },
    }
    _, network = nncfx.create_compressed_model(model, config)
    network.train()
    network(x).square().sum().backward()
    assert network[2].weight.grad.abs().sum() > 0


def test_what_an_input_changes_is_no_weight() -> None:
    class Dynamic(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(x, self.weight * x.mean(), self.bias)

    model = nncfx.wrap(Dynamic(8, 8, 3), torch.randn(1, 8, 6, 6))
    plan = plan_quantizers(model.nncf.graph, hardware_named("onnxruntime"))
    assert not plan.quantizers
    assert [one.reason for one in plan.float_operations if one.kind == "conv"] == [
        "its weight is computed from an input of the model"
    ]


def test_a_product_of_weights_is_told_as_one() -> None:
    class Folding(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            folded = F.conv2d(self.weight.flip(2, 3), self.weight[:, :, :1, :1] * 2)
            return F.conv2d(x, folded, self.bias)

    model = nncfx.wrap(Folding(8, 8, 3), torch.randn(1, 8, 6, 6))
    plan = plan_quantizers(model.nncf.graph, hardware_named("onnxruntime"))
    reasons = {one.address: one.reason for one in plan.float_operations}
    assert reasons["Folding/conv2d_0"] == "it multiplies parameters only"


def test_what_chance_changes_is_no_weight() -> None:
    class Dropped(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(x, F.dropout(self.weight, 0.5, training=True), self.bias)

    graph = nncfx.wrap(Dropped(8, 8, 3), torch.randn(1, 8, 6, 6)).nncf.graph
    assert 1 not in constant_operands(graph)["Dropped/conv2d_0"]


class Frozen(nn.Module):
    """A convolution and a batch norm of buffers alone, as torchvision's FrozenBatchNorm2d."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)
        self.register_buffer("gain", torch.rand(8) + 0.5)
        self.register_buffer("variance", torch.logspace(-2, 1, 8))

    def forward(self, x: Tensor) -> Tensor:
        scale = (
            self.gain.reshape(1, -1, 1, 1) * (self.variance.reshape(1, -1, 1, 1) + 1e-5).rsqrt()
        )
        return self.last((self.first(x) * scale + 0.1 * scale).relu())


def test_what_no_input_changes_along_channels_has_no_grid() -> None:
    x = torch.randn(2, 3, 8, 8)
    model = nncfx.quantize(Frozen().eval(), [x])
    sites = [str(one.site) for one in model.nncf.hooks]
    assert {"first.weight", "last.weight", "Frozen/Conv2d[first]/conv2d_0|INPUT0"} < set(sites)
    assert [one for one in sites if any(f in one for f in ("__", "reshape", "rsqrt"))] == []


@pytest.mark.parametrize(
    "shaped",
    [
        lambda weight, x: weight.type_as(x),
        lambda weight, x: weight.to(x),
        lambda weight, x: weight[None].view_as(x[:4]),
        lambda weight, x: weight[:1].expand_as(x[:4]),
    ],
)
def test_only_the_form_of_another_tensor_changes_no_values(
    shaped: Callable[[Tensor, Tensor], Tensor],
) -> None:
    class Shaped(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, shaped(self.weight, x))

    graph = nncfx.wrap(Shaped(8, 4), torch.ones(16, 8)).nncf.graph
    assert constant_operands(graph)["Shaped/linear_0"] == {1: frozenset({"weight"})}

"""The integer graph equals the simulated one, bit for bit."""

import random
from dataclasses import replace

import pytest
import torch
from pytorchcv.models.resnet_cifar import resnet20_cifar10
from torch import nn
from torch.nn import functional as F

from nncfx import hago
from nncfx.errors import CompressionError
from nncfx.hago.search.search import QuantizeSettings, search_space
from nncfx.targets import Descriptor, Hardware, hardware_named
from small_models import Function

KINDS = ("all 8 bits", "mixed")


class Attention(nn.Module):
    """Two heads of attention by matrix products, a layer norm and an MLP."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, width)
        self.position = nn.Parameter(torch.randn(1, 6, width))
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 32), nn.Linear(32, width)
        self.head = nn.Linear(width, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.position
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, 2, d // 2).permute(2, 3, 0, 1, 4).unbind(0)
        weights = (q @ k.transpose(-1, -2) * (d // 2) ** -0.5).softmax(-1)
        x = x + self.out((weights @ v).permute(1, 2, 0, 3).reshape(n, t, d))
        x = x + self.down(F.gelu(self.up(x)))
        return self.head(x.mean(1))


class Depthwise(nn.Module):
    """MobileNet-like: pointwise, depthwise, pointwise with a shortcut, ReLU6, concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6(True))
        self.expand = nn.Sequential(nn.Conv2d(8, 24, 1), nn.BatchNorm2d(24), nn.ReLU6(True))
        self.depth = nn.Sequential(
            nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.BatchNorm2d(24), nn.ReLU6(True)
        )
        self.project = nn.Sequential(nn.Conv2d(24, 8, 1), nn.BatchNorm2d(8))
        self.fc = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = torch.cat([x, x + self.project(self.depth(self.expand(x)))], 1)
        return self.fc(F.max_pool2d(x, 2).mean((2, 3)))


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 8), (8, 16)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)]
        layers += [nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 5))


def images() -> torch.Tensor:
    return torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(5))


def tokens() -> torch.Tensor:
    return torch.randint(0, 20, (3, 6), generator=torch.Generator().manual_seed(5))


MODELS = {"attention": (Attention, tokens), "depthwise": (Depthwise, images), "vgg": (vgg, images)}


def quantizer_of(
    model: nn.Module, inputs: torch.Tensor, hardware: Hardware, kind: str
) -> hago.Quantizer:
    for one in model.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.running_mean.normal_(0, 0.2)
            one.running_var.uniform_(0.5, 1.5)
    graph = hago.prepare_graph(model.eval(), inputs[:1])
    space = search_space(graph, hardware, [(inputs, torch.zeros(3))], QuantizeSettings())
    chosen = random.Random(0)  # noqa: S311 (a test)
    pick = (lambda each: min(each[0], 8)) if kind == "all 8 bits" else chosen.choice
    strategy = replace(space.strategy, bits=tuple(map(pick, space.choices)))
    return hago.create_quantizer(graph, hardware, strategy)


def require_equal(quantizer: hago.Quantizer, inputs: torch.Tensor) -> torch.Tensor:
    quantized, simulated = quantizer.quantize(), quantizer.simulate()
    with torch.no_grad():
        found, expected = quantized(inputs), simulated(inputs)
    assert torch.equal(found, expected)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hardware", ["onnxruntime", "tensorrt", "vta"])
@pytest.mark.parametrize("name", MODELS)
def test_integers_equal_the_simulation(name: str, hardware: Hardware, kind: str) -> None:
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    quantizer = quantizer_of(make(), inputs(), hardware_named(hardware), kind)
    assert any(quantizer.strategy.topology.node_conds)
    require_equal(quantizer, inputs())


@pytest.mark.parametrize("kind", KINDS)
def test_integers_equal_the_simulation_on_resnet20(kind: str) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(3, 3, 32, 32)
    require_equal(quantizer_of(resnet20_cifar10(), inputs, hardware_named("hago"), kind), inputs)


def test_sums_of_16_bits_wrap_around_in_both_alike(
    model: nn.Module, narrow_sums: Hardware
) -> None:
    inputs = images() * 3
    quantizer = quantizer_of(model, inputs, narrow_sums, "all 8 bits")
    wrapped = require_equal(quantizer, inputs)
    wide = replace(
        narrow_sums,
        operations={
            kind: tuple(replace(one, output="int32") for one in each)
            for kind, each in narrow_sums.operations.items()
        },
    )
    unwrapped = hago.create_quantizer(quantizer.graph, wide, quantizer.strategy).simulate()
    with torch.no_grad():
        assert (wrapped - unwrapped(inputs)).abs().max() > 0.1  # it did overflow


def test_wide_sums_are_near_the_floats(model: nn.Module, vnni: Hardware) -> None:
    inputs = images()
    quantizer = quantizer_of(model, inputs, vnni, "all 8 bits")
    with torch.no_grad():
        expected = quantizer.graph.model(inputs)
        assert (quantizer.quantize()(inputs) - expected).abs().max() < 0.05 * expected.abs().max()


def test_between_quantized_operations_there_are_integers_only(
    model: nn.Module, sample: Hardware
) -> None:
    quantizer = quantizer_of(model, images(), sample, "mixed")
    quantized = quantizer.quantize()
    program = next(iter(quantized._programs.values()))
    values = quantized.computed(program, [images()[:1]])
    conds = quantizer.strategy.topology.node_conds
    for node, is_quantized in zip(quantizer.graph.nodes, conds, strict=True):
        if node.is_call:
            assert values[node.name, 0].is_floating_point() != is_quantized


def test_another_batch_size_is_recorded_anew(model: nn.Module, vnni: Hardware) -> None:
    quantizer = quantizer_of(model, images(), vnni, "mixed")
    quantized = quantizer.quantize()
    whole = quantized(images())
    assert torch.equal(torch.cat([quantized(images()[:1]), quantized(images()[1:])]), whole)


def test_weights_are_kept_as_bytes(model: nn.Module, vnni: Hardware) -> None:
    quantized = quantizer_of(model, images(), vnni, "mixed").quantize()
    kinds = {key.split("_")[0]: one.dtype for key, one in quantized.state_dict().items()}
    assert kinds == {"weight": torch.int8, "bias": torch.int32}


def test_a_part_changed_in_place_is_refused(vnni: Hardware) -> None:
    class Patched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.conv(x)
            x[:, 0] = 0
            return x.relu()

    with pytest.raises(CompressionError, match=r"'Patched/__setitem___0' changes a part"):
        quantizer_of(Patched(), images(), vnni, "mixed").quantize()


def test_a_wrong_rule_is_found_and_the_operation_named(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hago.infer_scale, "_rules", dict(hago.infer_scale._rules))
    hago.infer_scale("conv2d")(lambda scales, _: scales[0] * scales[1] * 1.5)
    quantizer = quantizer_of(model, images(), hardware_named("vta"), "all 8 bits")
    with pytest.raises(
        CompressionError, match=r"'Residual/Conv2d\[conv1\]/conv2d_0' gives integers that differ"
    ):
        quantizer.quantize()


def test_an_operation_of_the_users_own_runs_in_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaky() -> nn.Module:
        return Function(lambda m, x: F.leaky_relu(m.conv(x), 0.5), conv=nn.Conv2d(3, 4, 3))

    wide = (Descriptor(inputs=("int32",), output="int32"),)
    conv = (Descriptor(inputs=("int8",), output="int32"),)
    hardware = Hardware(name="leaky", operations={"conv": conv, "leaky_relu": wide})
    monkeypatch.setattr(hago.infer_scale, "_rules", dict(hago.infer_scale._rules))
    hago.infer_scale("leaky_relu")(lambda scales, _: scales[0] / 2)
    monkeypatch.setattr(hago.integer_kernel, "_rules", dict(hago.integer_kernel._rules))
    hago.integer_kernel("leaky_relu")(
        lambda call: torch.where(call.args[0] < 0, call.args[0], 2 * call.args[0])
    )
    quantizer = quantizer_of(leaky(), images(), hardware, "all 8 bits")
    assert all(one for one in quantizer.strategy.topology.node_conds[2:])
    require_equal(quantizer, images())


def test_every_tensor_that_is_returned_is_equal() -> None:
    def forward(m: Function, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = m.conv(x)
        return (*x.chunk(2, 1), x)

    torch.manual_seed(0)
    graph = hago.prepare_graph(Function(forward, conv=nn.Conv2d(3, 6, 3)).eval(), images()[:1])
    hardware = hardware_named("tensorrt")
    space = search_space(graph, hardware, [(images(), torch.zeros(3))], QuantizeSettings())
    quantizer = hago.create_quantizer(graph, hardware, space.strategy)
    with torch.no_grad():
        found, expected = quantizer.quantize()(images()), quantizer.simulate()(images())
    assert len(found) == len(expected) == 3
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))

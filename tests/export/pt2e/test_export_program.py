"""`export_program` gives PyTorch's own quantized operators, and the simulation's values."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nncfx
from nncfx.errors import ExportError
from nncfx.export import export_program
from nncfx.export.checks.saturation_check import overflowing_readers
from small_models import Function, Rounding

STEP = 0.05


class Quantized(nn.Module):
    """A convolution with a batch norm, a ReLU and a linear layer, quantized by hand."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)
        self.norm.weight.data.uniform_(-1, 1)
        self.norm.running_mean.normal_()
        scale = self.conv.weight.detach().abs().amax((1, 2, 3)) / 127
        self.conv_q = Rounding(scale, (-127, 127), axis=0)
        self.head_q = Rounding(self.head.weight.detach().abs().max() / 127, (-127, 127))
        self.input_q = Rounding(STEP, (-128, 127))
        self.hidden_q = Rounding(STEP, (0, 255))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.conv2d(self.input_q(x), self.conv_q(self.conv.weight), self.conv.bias)
        x = self.hidden_q(torch.relu(self.norm(x)).mean((2, 3)))
        return F.linear(x, self.head_q(self.head.weight), self.head.bias)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return Quantized().eval()


@pytest.fixture(scope="module")
def program(model: nn.Module) -> torch.export.ExportedProgram:
    return export_program(model, images())


def images() -> torch.Tensor:
    return torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def test_the_program_computes_what_the_simulation_computes(
    model: nn.Module, program: torch.export.ExportedProgram
) -> None:
    # A feature half way between two integers may fall to either side.
    bound = STEP * model.head.weight.abs().max()
    assert (program.module()(images()) - model(images())).abs().max() <= bound


def test_only_quantized_operators_of_pytorch_are_in_it(
    program: torch.export.ExportedProgram,
) -> None:
    names = Counter(str(node.target) for node in program.graph.nodes if node.op == "call_function")
    quantized = {name.partition(".")[2]: n for name, n in names.items() if "decomposed" in name}
    assert quantized == {
        "quantize_per_tensor.default": 2,
        "dequantize_per_tensor.default": 2,
        "dequantize_per_channel.default": 2,
    }
    assert not any("fake_quantize" in name or "batch_norm" in name for name in names)


def test_weights_are_bytes(program: torch.export.ExportedProgram) -> None:
    weights = [one for one in program.state_dict.values() if one.ndim > 1]
    weights += [
        one for one in program.constants.values() if isinstance(one, torch.Tensor) and one.ndim > 1
    ]
    assert Counter(one.dtype for one in weights)[torch.int8] == 2
    reads = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    assert not any("conv_weight" in name or "head_weight" in name for name in reads)


def test_activations_are_unsigned(program: torch.export.ExportedProgram) -> None:
    dtypes = {
        node.args[-1] for node in program.graph.nodes if "quantize_per_tensor" in str(node.target)
    }
    assert dtypes == {torch.uint8}


def test_a_range_that_is_not_frozen_is_refused() -> None:
    class Open(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            zero = torch.zeros((), dtype=torch.int32)
            return torch.fake_quantize_per_tensor_affine(x, x.abs().max() / 127, zero, -127, 127)

    with pytest.raises(ExportError, match="computes its scale or zero point from the input"):
        export_program(Open(), torch.randn(2, 3))


def test_what_is_concatenated_from_inputs_is_quantized_as_an_activation() -> None:
    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        return m.quantizer(torch.cat((torch.relu(x), torch.sigmoid(x)), 1))

    model, x = Function(forward, quantizer=Rounding(STEP, (0, 255))).eval(), images()
    program = export_program(model, x)
    assert torch.equal(program.module()(x), model(x))
    assert any("quantize_per_tensor" in str(node.target) for node in program.graph.nodes)


def test_many_sums_of_two_readers_are_exported_in_linear_time() -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quantizer = Rounding(STEP, (0, 255))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(60):  # 2 ** 60 ways from the end to the input
                x = x + torch.relu(x)
            return self.quantizer(x)

    x = images() * 0
    assert torch.equal(export_program(Sums().eval(), x).module()(x), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_of_16_bits_computes_in_its_type_between_integers(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)]
    model, x = nn.Sequential(*layers).eval().to(dtype), torch.randn(2, 3, 8, 8).to(dtype)
    quantized = nncfx.quantize(model, [x])
    program = export_program(quantized, x)
    with torch.no_grad():
        found, expected = program.module()(x), quantized(x)
    assert found.dtype == dtype
    # a value half way between two of 255 integers may fall to either side, or one is rounded
    allowed = float(expected.abs().max()) / 64
    torch.testing.assert_close(found, expected, rtol=0, atol=allowed)
    assert len(overflowing_readers(program.module())) == 2


def test_a_program_of_two_types_between_integers_is_refused() -> None:
    mixed = Function(
        lambda m, x: m.two(m.one(x).relu().bfloat16()),
        one=nn.Linear(4, 4),
        two=nn.Linear(4, 4).bfloat16(),
    )
    x = torch.randn(2, 4)
    with pytest.raises(ExportError, match=r"torch.bfloat16, torch.float32; a program has one"):
        export_program(nncfx.quantize(mixed, [x]), x)


def test_activations_are_bytes_of_either_kind_with_the_same_values(
    model: nn.Module, program: torch.export.ExportedProgram
) -> None:
    signed = export_program(model, images(), signed=True)
    for one, kind, limits in ((program, torch.uint8, (0, 255)), (signed, torch.int8, (-128, 127))):
        found = [node.args[3:] for node in one.graph.nodes if "quantize_per_tensor" in node.name]
        assert found
        assert set(found) == {(*limits, kind)}
    torch.testing.assert_close(
        signed.module()(images()), program.module()(images()), rtol=0, atol=0
    )


def test_a_tensor_given_twice_is_two_inputs() -> None:
    a, b = torch.randn(2, 3, 4)
    program = export_program(Function(lambda _, a, b: a - 2 * b), (a, a)).module()
    assert torch.equal(program(a, b), a - 2 * b)

"""One exported small network for all tests of the package that only read it."""

from collections.abc import Callable

import onnx_ir as ir
import pytest
import torch
from torch import nn
from typing_extensions import override

from nncfx.export import ExportResult, export_onnx


class SmallCNN(nn.Module):
    """Convolutions with batch norms, a functional ReLU, a residual sum, a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, 5)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = torch.relu(x + self.body(x))
        return self.head(x.mean((2, 3)))


def settled(model: nn.Module, *, seed: int = 0) -> nn.Module:
    """Give the batch norms statistics and scales that are not the identity."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            shape = module.running_mean.shape
            module.running_mean.copy_(torch.randn(shape, generator=generator))
            module.running_var.copy_(torch.rand(shape, generator=generator) + 0.5)
            module.weight.data.copy_(torch.rand(shape, generator=generator) + 0.5)
            module.bias.data.copy_(torch.randn(shape, generator=generator))
    return model


@pytest.fixture(scope="session")
def small_model() -> nn.Module:
    return settled(SmallCNN())


@pytest.fixture(scope="session")
def small_inputs() -> torch.Tensor:
    return torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def small_result(
    small_model: nn.Module,
    small_inputs: torch.Tensor,
    tmp_path_factory: pytest.TempPathFactory,
) -> ExportResult:
    return export_onnx(small_model, tmp_path_factory.mktemp("export") / "m.onnx", small_inputs)


class Rounding(nn.Module):
    """A quantizer as small as can be: fixed scale, and zero point 0 unless given."""

    def __init__(
        self,
        scale: torch.Tensor | float,
        limits: tuple[int, int],
        *,
        zero_point: torch.Tensor | int = 0,
        axis: int | None = None,
    ) -> None:
        super().__init__()
        scale = torch.as_tensor(scale)
        self.register_buffer("scale", scale)
        zero_points = torch.as_tensor(zero_point).to(torch.int32).expand(scale.shape).clone()
        self.register_buffer("zero_point", zero_points)
        self.limits, self.axis = limits, axis

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.axis is None:
            return torch.fake_quantize_per_tensor_affine(
                x, self.scale, self.zero_point, *self.limits
            )
        return torch.fake_quantize_per_channel_affine(
            x, self.scale, self.zero_point, self.axis, *self.limits
        )


@pytest.fixture(scope="session")
def rounding() -> type[Rounding]:
    return Rounding


@pytest.fixture(scope="session")
def parsed() -> Callable[[str], ir.Model]:
    """Return a model from the lines of a graph in ONNX's text format."""

    def parse(graph: str) -> ir.Model:
        return ir.from_onnx_text(
            f'<ir_version: 10, opset_import: ["" : 21, "nncfx" : 1]>\n{graph}'
        )

    return parse


@pytest.fixture(scope="session")
def operators() -> Callable[[ir.Model], list[str]]:
    """Return the operators of a model, in order."""
    return lambda model: [node.op_type for node in model.graph]


@pytest.fixture(scope="session")
def value_named() -> Callable[[ir.Model, str], ir.Value]:
    def find(model: ir.Model, name: str) -> ir.Value:
        values = [*model.graph.inputs, *model.graph.initializers.values()]
        values += [value for node in model.graph for value in node.outputs]
        return next(value for value in values if value.name == name)

    return find

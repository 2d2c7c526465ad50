"""One exported small network for all tests of the package that only read it."""

import pytest
import torch
from torch import nn

from nncfx.export import ExportResult, export_onnx


class SmallCNN(nn.Module):
    """Convolutions with batch norms, a functional ReLU, a residual sum, a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, 5)

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
    small_model: nn.Module, small_inputs: torch.Tensor, tmp_path_factory: pytest.TempPathFactory
) -> ExportResult:
    return export_onnx(small_model, tmp_path_factory.mktemp("export") / "m.onnx", small_inputs)

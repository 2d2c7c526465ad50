"""A small network, exported once, for every test that needs a file to run."""

import pytest
import torch
from torch import nn

from nncfx.export import ExportResult, export_onnx


@pytest.fixture(scope="session")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 6, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 6 * 6, 5),
    ).eval()


@pytest.fixture(scope="session")
def inputs() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def exported(
    model: nn.Module,
    inputs: torch.Tensor,
    tmp_path_factory: pytest.TempPathFactory,
) -> ExportResult:
    return export_onnx(model, tmp_path_factory.mktemp("runtimes") / "model.onnx", inputs)

"""Rows of rectifiers and sums with constants are one of each in the file."""

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

from nncfx.export import export_onnx
from onnx_files import run_file


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def in_runtime(path: Path, inputs: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(run_file(path, inputs)[0])


IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


class Shifted(nn.Module):
    """Adds one number to each channel, which is the last axis or that of images."""

    def __init__(self, channels: int, *, low: float, axes: int) -> None:
        super().__init__()
        shape = (channels,) if axes < 4 else (channels, 1, 1)
        self.shift = nn.Parameter(low + 2 * torch.rand(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.shift


def row(*letters: str, axes: int = 4, low: float = -1.0) -> nn.Sequential:
    """Return a layer, and behind it a rectifier for each r and a shift for each s."""
    torch.manual_seed(0)
    first = nn.Conv2d(3, 6, 3) if axes == 4 else nn.Linear(8, 6)
    steps = [nn.ReLU() if one == "r" else Shifted(6, low=low, axes=axes) for one in letters]
    return nn.Sequential(first, *steps).eval()


@pytest.mark.parametrize(
    ("model", "left"),
    [
        (row(*"rsrsrsr"), ["Conv", "Relu", "BatchNormalization"]),
        (row(*"rsrsr", low=-3.0), ["Conv", "Relu"]),
        (row(*"srs"), ["Conv", "Relu", "BatchNormalization"]),
        (row(*"ss"), ["Conv", "BatchNormalization"]),
        (row(*"rr"), ["Conv", "Relu"]),
        (row(*"rsrsr", axes=2), ["Gemm", "Add", "Relu", "Add"]),
        (row(*"sr"), ["Conv", "Add", "Relu"]),
    ],
)
def test_rows_of_rectifiers_and_constants_are_merged(
    tmp_path: Path, model: nn.Sequential, left: list[str]
) -> None:
    inputs = IMAGES if isinstance(model[0], nn.Conv2d) else IMAGES[0, 0]
    path = export_onnx(model, tmp_path / "m.onnx", inputs).path
    assert operators(path) == left
    torch.testing.assert_close(in_runtime(path, inputs), model(inputs))


def test_a_row_with_an_infinite_constant_stays(tmp_path: Path) -> None:
    model = row(*"rsrsr")
    model[2].shift.data[0] = torch.inf
    path = export_onnx(model, tmp_path / "m.onnx", IMAGES).path
    torch.testing.assert_close(in_runtime(path, IMAGES), model(IMAGES))


class ReadTwice(nn.Module):
    """Returns what is in the middle of a row as well as what it ends with."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = row(*"rs"), row(*"rs")[1:]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        middle = self.before(x)
        return middle, self.after(middle)


def test_what_is_read_in_the_middle_of_a_row_stays(tmp_path: Path) -> None:
    model = ReadTwice().eval()
    path = export_onnx(model, tmp_path / "m.onnx", IMAGES).path
    for found, wanted in zip(run_file(path, IMAGES), model(IMAGES), strict=True):
        torch.testing.assert_close(torch.from_numpy(found), wanted)

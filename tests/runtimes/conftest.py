"""A small network, exported once, for every test that needs a file to run."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime.quantization as ort_quantization
import pytest
import torch
from torch import nn
from typing_extensions import override

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


@pytest.fixture(scope="session")
def in_int8() -> Callable[[Path, torch.Tensor], Path]:
    """Writes, beside a file, its Q/DQ form as ONNX Runtime's own quantizer makes it."""

    class Reader(ort_quantization.CalibrationDataReader):
        def __init__(self, path: Path, inputs: torch.Tensor) -> None:
            (name,) = (value.name for value in onnx.load(path).graph.input)
            self.batches: Iterator[dict[str, np.ndarray]] = iter([{name: inputs.numpy()}])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.batches, None)

    def write(path: Path, inputs: torch.Tensor) -> Path:
        result = path.with_suffix(".int8.onnx")
        ort_quantization.quantize_static(
            path,
            result,
            Reader(path, inputs),
            op_types_to_quantize=["Conv", "MatMul", "Gemm"],
            activation_type=ort_quantization.QuantType.QInt8,
            per_channel=True,
            extra_options={"ActivationSymmetric": True, "QuantizeBias": False},
        )
        return result

    return write


class Sequences(nn.Module):
    """An LSTM or a transformer over sequences of 8 numbers, and a linear layer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.body: nn.Module
        if kind == "LSTM":
            self.body = nn.LSTM(8, 12, batch_first=True)
        else:
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(12 if kind == "LSTM" else 8, 5)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.body(x)
        steps = found[0] if isinstance(found, tuple) else found
        result: torch.Tensor = self.head(steps[:, -1])
        return result


@pytest.fixture(scope="session", params=["LSTM", "transformer"])
def architecture(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[nn.Module, ExportResult]:
    """A model of sequences of 6 x 8 numbers, and its file with an open batch."""
    torch.manual_seed(0)
    model = Sequences(request.param).eval()
    folder = tmp_path_factory.mktemp(request.param)
    return model, export_onnx(model, folder / "model.onnx", torch.randn(2, 6, 8))


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of engines, so that what several tests compile is compiled once."""
    return tmp_path_factory.mktemp("engines")

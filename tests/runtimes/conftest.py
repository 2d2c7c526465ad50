"""A small network, exported once, for every test that needs a file to run."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime.quantization as ort_quantization
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
    model: nn.Module, inputs: torch.Tensor, tmp_path_factory: pytest.TempPathFactory
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


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of engines, so that what several tests compile is compiled once."""
    return tmp_path_factory.mktemp("engines")

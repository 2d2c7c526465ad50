"""Weights of layers that compute in float are decoded once, when the file is loaded."""

from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
import torch
from torch import nn

import nncfx
from nncfx.quantization import quantize, quantize_weights

IMAGES = torch.randn(2, 4, 9, 9, generator=torch.Generator().manual_seed(0))
SERIES = torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(0))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(4, 8, num_layers=2, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(x)[0]
        return found


def operators(file: Path) -> list[str]:
    return [node.op_type for node in onnx.load(file).graph.node]


def stored_types(file: Path) -> set[int]:
    return {one.data_type for one in onnx.load(file).graph.initializer if len(one.dims) > 1}


def loaded(file: Path) -> tuple[ort.InferenceSession, list[str]]:
    """Return a session, and the operators that ONNX Runtime has left when it was loaded."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(file.with_suffix(".loaded.onnx"))
    options.log_severity_level = 3  # that an optimized file is of one machine
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return session, operators(Path(options.optimized_model_filepath))


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (nn.Conv2d(4, 6, 3, groups=2), IMAGES),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), IMAGES),
        (nn.Conv1d(4, 6, 3), IMAGES[..., 0]),
        (Recurrent(nn.LSTM), SERIES),
        (Recurrent(nn.GRU), SERIES),
    ],
)
def test_weights_are_integers_in_the_file_and_floats_once_it_is_loaded(
    layer: nn.Module, inputs: torch.Tensor, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = quantize_weights(layer, example_inputs=inputs)
    file = Path(nncfx.export_onnx(model, tmp_path / "file.onnx", inputs).path)
    assert "DequantizeLinear" not in operators(file)
    assert onnx.TensorProto.INT8 in stored_types(file)
    session, left = loaded(file)
    assert not {"Cast", "DequantizeLinear"} & set(left)
    assert onnx.TensorProto.INT8 not in stored_types(tmp_path / "file.loaded.onnx")
    (found, *_) = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    expected = model(inputs).detach()
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-5, atol=1e-6)


def test_what_an_integer_kernel_reads_and_other_runtimes_keep_their_pairs(tmp_path: Path) -> None:
    layer = nn.Conv2d(4, 6, 3)
    whole = quantize(layer, [IMAGES])
    file = Path(nncfx.export_onnx(whole, tmp_path / "whole.onnx", IMAGES).path)
    assert "Cast" not in operators(file)
    assert "QLinearConv" in loaded(file)[1]
    weights = quantize_weights(layer, example_inputs=IMAGES)
    for target in ("openvino", "tensorrt"):
        file = Path(nncfx.export_onnx(weights, tmp_path / "w.onnx", IMAGES, target=target).path)
        assert operators(file) == ["DequantizeLinear", "Conv"]

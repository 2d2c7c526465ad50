"""Weights of four bits, two in a byte of the file; weights of layers in float, decoded once."""

from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
import torch
from torch import nn

import nncfx
from nncfx.quantization import integer_arithmetic, quantize, quantize_weights
from nncfx.runtimes import integer_kernels
from onnx_files import run_file


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 48, 3), nn.ReLU(), nn.Conv2d(48, 48, 3), nn.ReLU(), nn.Flatten()),
        nn.Linear(48 * 16, 10),
    ).eval()


def images() -> torch.Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def exported(folder: Path, bits: int, target: str = "onnxruntime") -> tuple[nn.Module, Path, int]:
    model = quantize(network(), [images()], preset="fast", weight_bits=bits, target=target)
    file = nncfx.export_onnx(model, folder / f"{bits}.onnx", images(), target=target)
    return model, Path(file.path), file.size_bytes


def stored_types(file: Path) -> set[int]:
    return {one.data_type for one in onnx.load(file).graph.initializer}


def test_the_file_has_half_of_the_bytes_and_runs_in_the_same_integers(tmp_path: Path) -> None:
    _, _, whole = exported(tmp_path, 8)
    model, file, half = exported(tmp_path, 4)
    assert half < 0.65 * whole  # the rest are the nodes of a small network
    assert onnx.TensorProto.INT4 in stored_types(file)
    kernels = integer_kernels(file, images())
    assert (len(kernels.integer), kernels.float) == (3, ())
    with torch.no_grad(), integer_arithmetic(model):
        expected = model(images())
    (found,) = run_file(file, images())
    assert torch.equal(torch.from_numpy(found), expected)


@pytest.mark.parametrize(("bits", "target"), [(5, "onnxruntime"), (4, "openvino")])
def test_wider_ones_and_those_for_other_runtimes_stay_bytes(
    bits: int, target: str, tmp_path: Path
) -> None:
    _, file, _ = exported(tmp_path, bits, target)
    assert onnx.TensorProto.INT4 not in stored_types(file)


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


def test_four_bits_of_a_layer_in_float_take_half_a_byte(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = quantize(Recurrent(nn.LSTM), [SERIES], preset="fast", weight_bits=4)
    file = Path(nncfx.export_onnx(model, tmp_path / "file.onnx", SERIES).path)
    assert stored_types(file) & {onnx.TensorProto.INT4, onnx.TensorProto.INT8} == {
        onnx.TensorProto.INT4
    }
    session, left = loaded(file)
    assert not {"Cast", "DequantizeLinear"} & set(left)
    (found, *_) = session.run(None, {session.get_inputs()[0].name: SERIES.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), model(SERIES).detach(), rtol=0, atol=1e-5)

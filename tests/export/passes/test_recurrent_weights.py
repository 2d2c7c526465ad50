"""Weights of recurrent layers are stored as bytes, and the file computes the simulation."""

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import nncfx
from nncfx.export import export_onnx
from nncfx.quantization import QuantizeOptions, quantize_weights
from onnx_files import assert_file_agrees, run_file


class Recurrent(nn.Module):
    """Token scores of a recurrent layer over vectors."""

    def __init__(self, cell: type[nn.RNNBase], **options: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn = cell(8, 16, batch_first=True, **options)
        self.fc = nn.Linear(16 * (2 if options.get("bidirectional") else 1), 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.rnn(x)[0])


FORMS: list[tuple[type[nn.RNNBase], dict[str, int]]] = [
    (nn.LSTM, {}),
    (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    (nn.GRU, {"bidirectional": True}),
    (nn.GRU, {"num_layers": 2}),
]


def float_matrices(path: Path) -> list[str]:
    """Return the names of constants that are matrices of floats."""
    return [
        one.name
        for one in onnx.load(path).graph.initializer
        if min((*one.dims, 9)) > 2
        and len(one.dims) > 1
        and one.data_type == onnx.TensorProto.FLOAT
    ]


@pytest.mark.parametrize(("cell", "options"), FORMS)
def test_onnx_runtime_computes_what_is_simulated(
    tmp_path: Path, cell: type[nn.RNNBase], options: dict[str, int]
) -> None:
    x = torch.randn(3, 7, 8)
    plain = Recurrent(cell, **options).eval()
    before = plain(x)
    model = nncfx.quantize(plain, [x], ignored_scopes=["{function}linear"])
    path = export_onnx(model, tmp_path / "m.onnx", x).path
    found = torch.from_numpy(run_file(path, x)[0])
    expected = model(x)
    # the same sums of floats in another order
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert (expected - before).abs().max() > 1e-4  # the weights are rounded
    assert len(float_matrices(path)) == 1  # that of the linear layer


def test_weights_alone_are_bytes_by_row_whatever_the_group(tmp_path: Path) -> None:
    x = torch.randn(3, 7, 8)
    model = quantize_weights(Recurrent(nn.LSTM).eval(), [x], bits=4, group_size=16)
    path = export_onnx(model, tmp_path / "m.onnx", x).path
    stored = {tuple(one.dims): one.data_type for one in onnx.load(path).graph.initializer}
    assert stored[64, 8] == stored[64, 16] == onnx.TensorProto.INT8
    assert float_matrices(path) == []


@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (nn.GRU, {}),
        (nn.GRU, {"num_layers": 2, "bidirectional": True}),
        (nn.LSTM, {}),
        (nn.LSTM, {"num_layers": 2}),
    ],
)
def test_openvino_reads_a_layer_beside_quantized_tensors(
    tmp_path: Path,
    layer: type[nn.Module],
    options: dict[str, int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip("openvino")
    x = torch.randn(3, 7, 8)
    model = nncfx.quantize(
        Recurrent(layer, **options).eval(),
        [x],
        target="openvino",
        # sums of bytes that fit 16 bits, on any CPU
        options=QuantizeOptions(overflow_fix="enable"),
    )
    path = export_onnx(model, tmp_path / "m.onnx", x, "openvino").path
    found = torch.from_numpy(run_file(path, x, "openvino")[0])
    expected = model(x)
    step = (expected.amax() - expected.amin()) / 255
    assert (found - expected).abs().max() <= step
    assert caplog.text.count("are written as floats, rounded as simulated") == (
        options.get("num_layers", 1)
    )


def test_openvino_reads_the_bytes_of_a_gru_where_weights_alone_are_quantized(
    tmp_path: Path,
) -> None:
    pytest.importorskip("openvino")
    x = torch.randn(3, 7, 8)
    model = quantize_weights(Recurrent(nn.GRU).eval(), [x])
    path = export_onnx(model, tmp_path / "m.onnx", x, "openvino").path
    assert float_matrices(path) == []
    assert_file_agrees(path, model, x, "openvino", rtol=1e-3, atol=1e-4)


def test_openvino_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    x = torch.randn(3, 7, 8)
    model = nncfx.quantize(
        Recurrent(nn.LSTM).eval(), [x], target="openvino", ignored_scopes=["{function}linear"]
    )
    path = export_onnx(model, tmp_path / "m.onnx", x, "openvino").path
    assert_file_agrees(path, model, x, "openvino", rtol=1e-3, atol=1e-4)

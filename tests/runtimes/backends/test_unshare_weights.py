"""Files in which layers share integer weights."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.errors import StorageError
from nncfx.runtimes import EXACT_BYTE_SUMS, unshare_weights
from nncfx.targets import target_named
from onnx_files import run_file

X = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))


class Repeated(nn.Module):
    """One layer three times over, as ALBERT repeats its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.layer(x).tanh()
        return x


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    quantized = nncfx.quantize(Repeated().eval(), [X])
    return nncfx.export_onnx(quantized, tmp_path_factory.mktemp("own") / "x.onnx", X).path


def read_by(path: Path) -> list[str]:
    graph = onnx.load(path).graph
    stored = {one.name for one in graph.initializer}
    return [
        node.input[0]
        for node in graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in stored
        for reader in graph.node
        if node.output[0] in reader.input
    ]


def executed(path: Path) -> np.ndarray:
    return run_file(path, X)[0]


def test_every_layer_reads_a_copy_of_its_own_and_the_file_computes_the_same(
    file: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.onnx"
    unshare_weights(file, own)
    onnx.checker.check_model(own, full_check=True)
    before, after = read_by(file), read_by(own)
    assert len(set(before)) < len(before) == len(after) == len(set(after))
    np.testing.assert_array_equal(executed(own), executed(file))


def test_a_file_of_shared_weights_runs_and_agrees_with_the_simulation(file: Path) -> None:
    quantized = nncfx.quantize(Repeated().eval(), [X])
    with torch.no_grad(), nncfx.quantization.integer_arithmetic(quantized):
        expected = quantized(X).numpy()
    np.testing.assert_allclose(executed(file), expected, atol=1e-6)


def test_the_advice_for_exact_sums_names_what_makes_a_session_of_such_a_file(
    file: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.onnx"
    unshare_weights(file, own)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(*EXACT_BYTE_SUMS)
    session = onnxruntime.InferenceSession(own, options)
    np.testing.assert_array_equal(session.run(None, {"x": X.numpy()})[0], executed(file))
    assert "nncfx.runtimes.unshare_weights" in target_named("onnxruntime").saturation_mend


def test_what_is_no_onnx_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"damaged")
    with pytest.raises(StorageError, match=r"a\.onnx' is not an ONNX model"):
        unshare_weights(tmp_path / "a.onnx", tmp_path / "b.onnx")

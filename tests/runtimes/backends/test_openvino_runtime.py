"""OpenVINO: what holds without it; the rest is in the conformance suite."""

import sys
from pathlib import Path

import numpy as np
import onnx
import openvino
import pytest
import torch

import nncfx
from nncfx.errors import MissingExtraError, RuntimeFailure
from nncfx.export import ExportResult
from nncfx.runtimes import BuildOptions, runtime_named


def test_a_missing_package_names_the_extra(
    exported: ExportResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtraError, match=r"'openvino' is not .*'nncfx\[openvino\]'"):
        runtime_named("openvino").build(exported, BuildOptions())


def test_a_compiled_model_is_kept_and_gives_the_same_outputs(
    exported: ExportResult, inputs: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the file that it was compiled from is not read into a model again."""
    outputs, read = [], []
    read_model = openvino.Core.read_model
    monkeypatch.setattr(
        openvino.Core, "read_model", lambda *given: read.append(given) or read_model(*given)
    )
    for _ in range(2):
        options = BuildOptions(threads=1, cache=tmp_path)
        with runtime_named("openvino").build(exported, options) as session:
            outputs.append(session.run(inputs)[0])
        (kept,) = tmp_path.iterdir()
    assert kept.name.startswith("openvino-")
    assert len(read) == 1
    np.testing.assert_array_equal(*outputs)


def test_a_damaged_kept_model_is_told(exported: ExportResult, tmp_path: Path) -> None:
    options = BuildOptions(threads=1, cache=tmp_path)
    runtime_named("openvino").build(exported, options).close()
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.raises(RuntimeFailure, match=r"is damaged. Delete it"):
        runtime_named("openvino").build(exported, options)


def test_a_refused_file_is_told_with_what_openvino_says_of_it(
    exported: ExportResult, tmp_path: Path
) -> None:
    file = onnx.load(exported.path)
    file.graph.node[-1].op_type = "Riddle"
    onnx.save(file, tmp_path / "riddle.onnx")
    with pytest.raises(RuntimeFailure, match="Riddle") as failure:
        runtime_named("openvino").build(tmp_path / "riddle.onnx", BuildOptions())
    assert "Exception from" not in str(failure.value)


@pytest.mark.parametrize("bits", [4, 8])
def test_weights_alone_are_those_of_the_simulation_without_dynamic_quantization(
    bits: int, tmp_path: Path
) -> None:
    """As docs/integer_export.md says; OpenVINO would round the inputs to 8 bits, too."""
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 32)).eval(), torch.randn(4, 64)
    group = 32 if bits < 8 else None
    packed = nncfx.quantization.quantize_weights(model, [x], bits=bits, group_size=group)
    file = nncfx.export_onnx(packed, tmp_path / "w.onnx", x, target="openvino")
    options = BuildOptions(settings={"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0})
    with runtime_named("openvino").build(file, options) as session:
        np.testing.assert_allclose(session.run(x)[0], packed(x).detach(), atol=1e-5)


@pytest.mark.parametrize(
    ("target", "is_told"), [("onnxruntime", True), ("onnxruntime-avx2", True), ("openvino", False)]
)
def test_a_file_for_another_runtime_is_told(
    target: str, is_told: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.randn(2, 4)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    file = nncfx.export_onnx(nncfx.quantize(model, [x]), tmp_path / "m.onnx", x, target=target)
    plain = nncfx.export_onnx(model, tmp_path / "float.onnx", x, target=target)
    for one in (file, plain):
        for cache in (None, tmp_path / "kept", tmp_path / "kept"):
            runtime_named("openvino").build(one, BuildOptions(cache=cache)).close()
    told = [one for one in caplog.messages if "target='openvino'" in one]
    expected = [f"m.onnx' is written for '{target}'"] * 3 if is_told else []
    assert len(told) == len(expected)
    assert all(text in one for text, one in zip(expected, told, strict=True))

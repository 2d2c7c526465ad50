"""Each command does what the function of its name does."""

import importlib.metadata
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import nncfx.storage
from nncfx.cli.commands import application
from nncfx.cli.timing import parse_shapes
from nncfx.compressor.evidence import Evidence, ModelFacts
from nncfx.errors import ArgumentError, NNCFXError, StorageError
from nncfx.export import export_onnx
from nncfx.report import render_report


def run(*arguments: str | Path) -> str:
    """Return what the command prints; an error of ours is raised as it is."""
    result = CliRunner().invoke(application, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "linear.onnx"
    export_onnx(torch.nn.Linear(3, 2), path, torch.zeros(2, 3))
    return path


def test_version_is_that_of_the_package() -> None:
    assert importlib.metadata.version("nncfx") in run("version")


def test_report_renders_the_evidence(tmp_path: Path) -> None:
    facts = ModelFacts(
        accuracy=0.5,
        parameters=1,
        nonzero=1,
        macs=1,
        footprint_bytes=4,
        file_bytes=None,
        latency_ms=None,
        latency_interval_ms=None,
        throughput=None,
    )
    evidence = Evidence(
        title="t",
        created="2026-01-01T00:00:00+00:00",
        metric="accuracy",
        runtime="torch",
        machine={},
        versions={},
        dense=facts,
        compressed=facts,
        studies=(),
        layers=(),
        max_thinning_error=None,
        files={},
        notes=(),
    )
    source, page = evidence.write(tmp_path / "evidence.json"), tmp_path / "page.html"
    assert str(page) in run("report", source, "--output", page).replace("\n", "")
    assert page.read_text(encoding="utf-8") == render_report(evidence)


def test_inspect_file_lists_every_tensor(tmp_path: Path) -> None:
    path = tmp_path / "m.nncfx"
    nncfx.storage.save(path, torch.nn.Linear(3, 2))
    text = run("inspect-file", path)
    assert "weight" in text
    assert "2x3" in text
    assert "2 tensors, 8 elements" in text


def test_inspect_file_of_a_folder_is_our_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="There is no file"):
        run("inspect-file", tmp_path)


def test_benchmark_times_each_file_against_the_first(onnx_file: Path) -> None:
    found = json.loads(
        run("benchmark", onnx_file, onnx_file, "--seconds", "0.05", "--batch", "4", "--json"),
    )
    first, second = found["models"]
    assert found["runtime"] == "onnxruntime"
    assert (first["examples"], first["speed_up"]) == (4, None)
    low, high = first["interval_ms"]
    assert 0 < low <= first["median_ms"] <= high
    # the same file: equal but for noise, for which a factor of three is plenty
    assert 1 / 3 < second["speed_up"] < 3


def test_benchmark_prints_a_row_for_each_file(onnx_file: Path) -> None:
    assert "linear.onnx" in run("benchmark", onnx_file, "--seconds", "0.05")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--runtime", "torch"], "runs modules and reads no ONNX files"),
        (["--runtime", "onnxrutime"], "Did you mean 'onnxruntime'?"),
        (["--shape", "y=1x3"], "has no input 'y'"),
        (["--shape", "3"], "does not name an input"),
        (["--threads", "0"], "threads is 0"),
    ],
)
def test_benchmark_refuses_with_a_reason(
    onnx_file: Path,
    options: list[str],
    message: str,
) -> None:
    with pytest.raises(NNCFXError) as refusal:
        run("benchmark", onnx_file, *options)
    assert message in str(refusal.value)


@pytest.mark.parametrize("text", ["x=", "x=1x", "=1x2", "x=1x0", "x=-1", "x=axb"])
def test_a_shape_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="does not name an input and its sizes"):
        parse_shapes([text])

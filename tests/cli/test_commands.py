"""Each command does what the function of its name does."""

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import nncfx.storage
import report_evidence
from command_line import run
from nncfx.cli.commands import application
from nncfx.cli.timing.options import parse_shapes
from nncfx.errors import ArgumentError, NNCFXError, RuntimeFailure, StorageError
from nncfx.export import export_onnx
from nncfx.report import render_report
from nncfx.runtimes import EnergyCounter


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "linear.onnx"
    export_onnx(torch.nn.Linear(3, 2), path, torch.zeros(2, 3))
    return path


def test_version_is_that_of_the_package() -> None:
    assert importlib.metadata.version("nncfx") in run("version")


def test_report_renders_the_evidence(tmp_path: Path) -> None:
    evidence = report_evidence.EVIDENCE
    source, page = evidence.write(tmp_path / "evidence.json"), tmp_path / "page.html"
    assert str(page) in run("report", source, "--output", page).replace("\n", "")
    assert page.read_text(encoding="utf-8") == render_report(evidence)
    page.unlink()
    run("report", tmp_path, "--output", page)
    assert page.read_text(encoding="utf-8") == render_report(evidence)
    with pytest.raises(ArgumentError, match="would be replaced by its report"):
        run("report", tmp_path, "--output", tmp_path / "evidence.json")


def test_inspect_file_lists_every_tensor(tmp_path: Path) -> None:
    path = tmp_path / "m.nncfx"
    nncfx.storage.save(path, torch.nn.Linear(3, 2))
    text = run("inspect-file", path)
    assert "weight" in text
    assert "2x3" in text
    assert "2 tensors, 8 elements" in text


def test_inspect_file_of_a_folder_is_our_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is a folder, and one file is read"):
        run("inspect-file", tmp_path)


def test_benchmark_times_each_file_against_the_first(onnx_file: Path) -> None:
    found = json.loads(
        run("benchmark", onnx_file, onnx_file, "--seconds", "0.05", "--batch", "4", "--json")
    )
    (series,) = found["series"]
    first, second = series["models"]
    assert (series["runtime"], series["batch"]) == ("onnxruntime", 4)
    assert (first["examples"], first["speed_up"]) == (4, None)
    low, high = first["interval_ms"]
    assert 0 < low <= first["median_ms"] <= high
    assert first["median_ms"] == first["p50_ms"] <= first["p99_ms"]
    low, high = second["speed_up_interval"]
    assert 0 < low <= second["speed_up"] <= high


def test_benchmark_sweeps_batches_and_runtimes(onnx_file: Path) -> None:
    arguments = ["--seconds", "0.02", "--batch", "1", "--batch", "8", "--json"]
    runtimes = ["--runtime", "onnxruntime", "--runtime", "openvino"]
    found = json.loads(run("benchmark", onnx_file, *arguments, *runtimes))["series"]
    assert [(one["runtime"], one["batch"]) for one in found] == [
        ("onnxruntime", 1),
        ("onnxruntime", 8),
        ("openvino", 1),
        ("openvino", 8),
    ]


def test_benchmark_goes_on_where_one_runtime_fails(
    onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    runtimes = ["--runtime", "openvino", "--runtime", "onnxruntime"]
    result = CliRunner().invoke(
        application, ["benchmark", str(onnx_file), "--seconds", "0.02", "--json", *runtimes]
    )
    assert result.exit_code == 2
    assert "pip install 'nncfx[openvino]'" in result.stderr
    found = json.loads(result.stdout)
    assert [one["runtime"] for one in found["series"]] == ["onnxruntime"]
    assert [one["runtime"] for one in found["failures"]] == ["openvino"]


def test_benchmark_prints_a_row_for_each_file(onnx_file: Path) -> None:
    assert "linear.onnx" in run("benchmark", onnx_file, "--seconds", "0.05")


def test_benchmark_shows_the_layers(onnx_file: Path) -> None:
    text = run("benchmark", onnx_file, "--seconds", "0.02", "--layers", "--batch", "2")
    assert "Time of each layer" in text
    assert "2x2" in text  # the output of the only layer


@pytest.fixture(scope="module")
def batch_of_five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "five.onnx"
    export_onnx(torch.nn.Linear(3, 2), path, torch.zeros(5, 3), dynamic_batch=False)
    return path


def test_benchmark_takes_the_batch_of_the_file(batch_of_five: Path) -> None:
    (series,) = json.loads(run("benchmark", batch_of_five, "--seconds", "0.02", "--json"))[
        "series"
    ]
    assert (series["batch"], series["models"][0]["examples"]) == (5, 5)


def test_benchmark_refuses_a_batch_that_the_file_does_not_take(batch_of_five: Path) -> None:
    with pytest.raises(ArgumentError, match=r"computes batches of 5 and no others.* --batch 4"):
        run("benchmark", batch_of_five, "--batch", "4")


def test_benchmark_compares_equal_batches_only(onnx_file: Path, batch_of_five: Path) -> None:
    with pytest.raises(ArgumentError, match=r"computes 1 examples and one of .*five.onnx' 5"):
        run("benchmark", onnx_file, batch_of_five)
    assert "five.onnx" in run(
        "benchmark", onnx_file, batch_of_five, "--batch", "5", "--seconds", "0.02"
    )


def test_benchmark_takes_the_shape_of_the_only_input_without_its_name(onnx_file: Path) -> None:
    arguments = ["benchmark", onnx_file, "--seconds", "0.02", "--input-shape", "7x3", "--json"]
    (series,) = json.loads(run(*arguments))["series"]
    assert series["batch"] == 7


def test_benchmark_takes_batches_in_turn_of_an_input_whose_shape_is_given(onnx_file: Path) -> None:
    batches = ["--batch", "3", "--batch", "4", "--input-shape", "1x3"]
    found = json.loads(run("benchmark", onnx_file, "--seconds", "0.02", *batches, "--json"))
    assert [one["batch"] for one in found["series"]] == [3, 4]


def test_benchmark_says_which_clock_and_how_many_threads(onnx_file: Path) -> None:
    arguments = ["benchmark", onnx_file, "--seconds", "0.02", "--threads", "1", "--clock", "cpu"]
    (series,) = json.loads(run(*arguments, "--json"))["series"]
    assert (series["threads"], series["clock"]) == (1, "cpu")
    assert 0 <= series["held_up"] <= 1
    text = run(*arguments)
    assert "1 thread" in text
    assert "CPU time of the one thread" in text


def test_benchmark_says_of_what_call_every_time_is(onnx_file: Path) -> None:
    arguments = ["benchmark", onnx_file, "--seconds", "0.02", "--batch", "3", "--layers"]
    text = " ".join(run(*arguments).split())
    call = "batch 3, threads as the runtime chose"
    assert text.count(call) == 2
    assert f"Time of each layer (ms), {call}" in text


class Meter:
    """A counter that has gone up by half a joule at each reading."""

    def __init__(self) -> None:
        self.reading = 0.0

    def joules(self) -> float:
        self.reading += 0.5
        return self.reading


def test_benchmark_tells_the_energy_of_a_call(
    onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = (EnergyCounter("stand-in", Meter().joules),)
    monkeypatch.setattr("nncfx.runtimes.inspect.energy.energy_counters", lambda: counters)
    arguments = ["benchmark", onnx_file, "--seconds", "0", "--energy", "--batch", "4"]
    (series,) = json.loads(run(*arguments, "--json"))["series"]
    assert series["models"][0]["joules"] == 0.5  # no seconds: one call, between two readings
    text = run(*arguments)
    assert "125" in text.split("mJ")[1]
    assert "mJ: energy of one example" in text


def test_benchmark_without_counters_measures_nothing(
    onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nncfx.runtimes.inspect.energy.energy_counters", tuple)
    with pytest.raises(RuntimeFailure, match="no energy counters"):
        run("benchmark", onnx_file, "--energy")


def test_benchmark_on_the_cpu_clock_needs_one_thread(onnx_file: Path) -> None:
    arguments = ["benchmark", onnx_file, "--seconds", "0.02", "--clock", "cpu", "--threads"]
    assert "linear.onnx" in run(*arguments, "1")
    with pytest.raises(ArgumentError, match="Build for one thread"):
        run(*arguments, "2")


@pytest.mark.parametrize(("factor", "code"), [(1e-3, 3), (1e3, 0)])
def test_a_regression_against_the_baseline_has_its_own_exit_code(
    onnx_file: Path, tmp_path: Path, factor: float, code: int
) -> None:
    text = run("benchmark", onnx_file, "--seconds", "0.02", "--json")
    document = json.loads(text)
    for model in document["series"][0]["models"]:
        model["interval_ms"] = [factor * one for one in model["interval_ms"]]
    baseline = tmp_path / "baseline.json"
    baseline.write_text(json.dumps(document), encoding="utf-8")
    result = CliRunner().invoke(
        application,
        ["benchmark", str(onnx_file), "--seconds", "0.02", "--baseline", str(baseline)],
    )
    assert result.exit_code == code
    assert ("REGRESSION: linear.onnx on onnxruntime" in result.stderr) == (code == 3)


def test_a_baseline_of_other_models_or_machines_is_refused(
    onnx_file: Path, tmp_path: Path
) -> None:
    document = json.loads(run("benchmark", onnx_file, "--seconds", "0.02", "--json"))
    baseline = tmp_path / "baseline.json"
    arguments = ["benchmark", onnx_file, "--seconds", "0.02", "--baseline", baseline]
    document["series"][0]["models"][0]["path"] = "other.onnx"
    baseline.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"it has other.onnx on onnxruntime"):
        run(*arguments)
    document["machine"]["processor"] = "Z80"
    baseline.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ArgumentError, match="was measured on 'Z80'"):
        run(*arguments)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "no json",
        '{"series": [1], "machine": {}}',
        '{"machine": {"processor": "Z80"}, "series": [{"runtime": "r", "models": [{}]}]}',
    ],
)
def test_a_file_that_is_no_baseline_is_refused(onnx_file: Path, tmp_path: Path, text: str) -> None:
    baseline = tmp_path / "baseline.json"
    baseline.write_text(text, encoding="utf-8")
    with pytest.raises(StorageError, match="is not a baseline"):
        run("benchmark", onnx_file, "--seconds", "0.02", "--baseline", baseline)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--runtime", "torch"], "runs modules and reads no ONNX files"),
        (["--runtime", "onnxrutime"], "Did you mean 'onnxruntime'?"),
        (["--shape", "y=1x3"], "names input 'y'; the inputs of"),
        (["--shape", "x3"], "does not name an input"),
        (["--threads", "0"], "threads is 0"),
        (["--cpus", "a"], "is not a list of processors"),
        (["--cpus", "99999"], "this process may run on"),
        (["--clock", "sun"], "There is no clock 'sun'"),
        (["--setting", "mode"], "is not NAME=VALUE"),
        (["--runtime", "openvino", "--layers"], "Only onnxruntime reports"),
        (["--baseline", "missing.json"], "There is no baseline 'missing.json'"),
    ],
)
def test_benchmark_refuses_with_a_reason(
    onnx_file: Path, options: list[str], message: str
) -> None:
    with pytest.raises(NNCFXError) as refusal:
        run("benchmark", onnx_file, *options)
    assert message in str(refusal.value)


@pytest.mark.parametrize("text", ["", "x=", "x=1x", "=1x2", "x=1x0", "x=-1", "x=axb"])
def test_a_shape_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="does not name an input and its sizes"):
        parse_shapes([text])

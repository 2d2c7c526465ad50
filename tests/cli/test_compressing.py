"""The job as processes: planned, killed, looked at, resumed."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import programs
from nncfx.cli.commands import application
from programs import Program, Told


def run(folder: Path, *arguments: str, code: int = 0) -> Told:
    """Run a command in a process of its own, which ends with this exit code."""
    return programs.run(folder, "nncfx", *arguments, code=code)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the config that `config init` writes, and the search not too quick."""
    folder = tmp_path_factory.mktemp("task")
    run(folder, "config", "init")
    document = json.loads((folder / "task.json").read_text())
    document["metric"] = "task.py:slow_accuracy"
    document["export"]["quantize"] = False
    document["export"]["benchmark"] = False
    document["search"] |= {"eps": 0.3, "max_evaluations": 3}
    (folder / "task.json").write_text(json.dumps(document))
    with (folder / "task.py").open("a") as file:
        file.write(
            "\ndef slow_accuracy(model, loader):\n"
            "    import time; from nncfx.compressor import accuracy\n"
            "    time.sleep(0.1); return accuracy(model, loader)\n"
        )
    return folder


def test_a_dry_run_prints_the_plan_and_writes_nothing(begun: Path) -> None:
    before = sorted(one.name for one in begun.iterdir() if one.name != "__pycache__")
    plan = json.loads(run(begun, "compress", "task.json", "--dry-run", "--json").stdout)
    assert plan["predictions"][0]["at"] == "dense"
    assert plan["predictions"][1]["macs"] < plan["predictions"][0]["macs"]
    text = run(begun, "compress", "task.json", "--dry-run").stdout
    assert "search macs in at most 2 stages of 3 trials" in text
    assert sorted(one.name for one in begun.iterdir() if one.name != "__pycache__") == before


@pytest.mark.slow
def test_a_python_file_to_begin_with_runs_and_its_file_is_judged(tmp_path: Path) -> None:
    run(tmp_path, "config", "init", "own.py")
    file = tmp_path / "own.py"
    # every score of the runtime's sessions is 0, as if the export had gone wrong
    file.write_text(
        file.read_text().replace("'eps': 0.02", "'eps': 0.4, 'threads': 1")
        + "\ndef metric(model, loader):\n"
        "    from nncfx.compressor import accuracy\n"
        "    return accuracy(model, loader) if list(model.parameters()) else next(drop)\n"
        "drop = iter((0.5, 1.0))\n"
    )
    done = run(tmp_path, "compress", "own.py", code=3)
    assert "OUTSIDE the budget: the file, after its export" in done.stdout
    assert "metric 0.5000, dense 1.0000" in done.stdout


@pytest.mark.slow
def test_a_killed_run_is_stopped_and_goes_on(begun: Path) -> None:
    out = begun / "task-run"
    journal = out / "journal.jsonl"
    with Program(begun, "nncfx", "compress", "task.json") as process:
        # two trials, one dense, and its header
        process.wait_for(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 3)
        process.signal(signal.SIGSTOP)  # so that it does not end before it is looked at
        running = status_of(begun)
        assert (running["state"], running["at_most"]) == ("running", 6)
        process.kill()
    lines = journal.read_bytes().splitlines()
    assert status_of(begun)["state"] == "stopped"
    assert "best so far" in run(begun, "status", "task-run", "--html", "now.html").stdout
    assert "<html" in (begun / "now.html").read_text()
    resumed = run(begun, "resume", "task-run")
    assert "continuing after" in resumed.stderr  # lines of progress, as nobody is at a terminal
    assert "slow_accuracy" in resumed.stdout
    assert journal.read_bytes().splitlines()[: len(lines)] == lines
    assert status_of(begun)["state"] == "ended"
    result = json.loads((out / "result.json").read_text())
    assert result["compressed"]["macs"] < result["dense"]["macs"]
    model = (out / "model.nncfx").stat().st_mtime_ns
    ended = run(begun, "resume", "task-run")
    assert "this run has ended" in ended.stderr
    assert ended.stdout == resumed.stdout
    assert (out / "model.nncfx").stat().st_mtime_ns == model


def status_of(folder: Path) -> Mapping[str, Any]:
    return json.loads(run(folder, "status", "task-run", "--json").stdout)


def test_a_mistake_is_one_paragraph(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"model": "x", "serch": {}, "export": {}}')
    done = run(tmp_path, "compress", "a.json", code=2)
    assert "serch: unknown key" in done.stderr
    assert "Traceback" not in done.stderr
    assert run(tmp_path, "status", ".", code=2).stderr.startswith("StorageError: '.' holds no run")
    assert run(tmp_path, "--version").stdout.startswith("nncfx ")


@pytest.mark.slow
def test_interrupting_says_how_to_go_on(begun: Path) -> None:
    # what a shell runs in the background ignores interrupts, and so would its children
    heeding = ["/usr/bin/env", "--default-signal=INT", sys.executable]
    with subprocess.Popen(
        [*heeding, "-m", "nncfx", "compress", "task.json", "--folder", "other"],
        cwd=begun,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        told = ""
        for line in process.stderr:
            told += line
            if "dense" in line:
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert "continue with: nncfx resume other" in told


@pytest.mark.slow
def test_every_other_command_runs_as_a_process(begun: Path) -> None:
    assert "no fault" in run(begun, "config", "check", "task.json").stdout
    assert "$defs" in run(begun, "config", "schema").stdout
    assert "MACs" in run(begun, "inspect", "task.json").stdout
    run(begun, "export", "task.json", "--output", "m.onnx")
    run(begun, "quantize", "task.json", "--output", "q.onnx")
    assert "int8 bytes" in run(begun, "diff", "m.onnx", "q.onnx").stdout
    assert "m.onnx" in run(begun, "benchmark", "m.onnx", "q.onnx", "--seconds", "0.05").stdout
    run(begun, "quantize", "task.json", "--output", "q.safetensors")
    run(begun, "pack", "q.safetensors")
    assert "CRC-32" in run(begun, "inspect-file", "q.nncfx").stdout
    again = ("unpack", "q.nncfx", "--output", "again.safetensors")
    run(begun, *again)
    assert "hold the same" in run(begun, "diff", "q.safetensors", "again.safetensors").stdout
    assert "exists already" in run(begun, "unpack", "q.nncfx", code=2).stderr
    assert "torch" in run(begun, "version").stdout


def test_every_command_is_run_as_a_process_here() -> None:
    """A command that is added to the table is added to a test of this file."""
    commands = {
        one.name or one.callback.__name__.replace("_", "-")
        for one in application.registered_commands
        if one.callback is not None
    }
    text = Path(__file__).read_text(encoding="utf-8")
    assert sorted(one for one in commands if f'"{one}"' not in text) == []


@pytest.mark.slow
def test_two_workers_make_the_trials_of_a_search(begun: Path) -> None:
    done = run(begun, "compress", "task.json", "--folder", "two", "--workers", "2")
    assert "slow_accuracy" in done.stdout
    assert json.loads(run(begun, "status", "two", "--json").stdout)["state"] == "ended"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["training", "space"])
def test_a_page_of_a_run_that_has_no_common_level(begun: Path, tmp_path: Path, kind: str) -> None:
    document = json.loads((begun / "task.json").read_text())
    if kind == "training":
        del document["search"]
        document["compression"] = [{"algorithm": "magnitude_sparsity", "sparsity_init": 0.3}]
        document.setdefault("train", {})["epochs"] = 3
    else:
        schemes = [{"name": "Prune", "level": [0.1, 0.8]}]
        document["search"] |= {"schemes": schemes, "objective": "footprint"}
    (tmp_path / "task.json").write_text(json.dumps(document))
    (tmp_path / "task.py").write_text((begun / "task.py").read_text())
    file = tmp_path / "task-run" / ("training.json" if kind == "training" else "journal.jsonl")
    with Program(tmp_path, "nncfx", "compress", "task.json") as process:
        process.wait_for(
            lambda: file.exists() and file.read_bytes().count(b"\n") > (kind == "space")
        )
        process.signal(signal.SIGSTOP)
        run(tmp_path, "status", "task-run", "--html", "now.html")
        page = (tmp_path / "now.html").read_text()
        assert "Not ended: running" in page
        assert ("loss" if kind == "training" else "Prune level") in page
        assert 'http-equiv="refresh"' in page
        process.signal(signal.SIGCONT)
        run(tmp_path, "status", "task-run", "--html", "now.html", "--follow")
        process.ended()
    assert "Not ended" not in (tmp_path / "now.html").read_text()


@pytest.mark.slow
def test_the_demo_keeps_its_budget_and_can_be_changed(tmp_path: Path) -> None:
    run(tmp_path, "demo", "out", "--quiet")
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["exported_metric"] > result["dense"]["accuracy"] - 0.03
    assert result["dense_onnx_bytes"] > 4 * result["onnx_bytes"]
    assert "def model()" in (tmp_path / "out" / "digits.py").read_text()
    run(tmp_path, "report", "out", "--output", "page.html")
    assert "<html" in (tmp_path / "page.html").read_text()

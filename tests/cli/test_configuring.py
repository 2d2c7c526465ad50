"""`nncfx config`: what it finds, what it writes, and the schema."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from command_line import run
from nncfx.errors import ArgumentError, ConfigError
from nncfx.tasks import plan_task, read_task


@pytest.mark.parametrize("kind", ["--search", "--no-search"])
def test_what_init_writes_is_sound_and_runs(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("config", "init", f"{kind[2:]}.json", kind)
    assert "no fault" in run("config", "check", f"{kind[2:]}.json")
    plan = plan_task(read_task(f"{kind[2:]}.json"))
    assert plan.predictions[-1].file_bytes < plan.predictions[0].file_bytes
    with pytest.raises(ArgumentError, match="exists already"):
        run("config", "init", f"{kind[2:]}.json")
    document = json.loads(Path(f"{kind[2:]}.json").read_text())
    jsonschema.validate(document, json.loads(run("config", "schema")))


def test_check_lists_every_fault_of_a_task(tmp_path: Path) -> None:
    path = tmp_path / "task.json"
    path.write_text(
        '{"model": "net.py:model", "data": "net.py:data", "train": {"batch": 1}, '
        '"compression": "filter_pruning"}  // read as a task although both are wrong'
    )
    faults = r'(?s)Write \{"algorithm": "filter_pruning"\}.*train.batch: unknown key'
    with pytest.raises(ConfigError, match=faults):
        run("config", "check", path)


@pytest.mark.parametrize("model", ['"net.py:model"', '{"factory": "net.py:model"}'])
def test_check_tells_a_task_of_the_data_that_it_lacks(tmp_path: Path, model: str) -> None:
    path = tmp_path / "task.json"
    path.write_text(f'{{"model": {model}, "compression": {{"algorithm": "quantization"}}}}')
    with pytest.raises(ConfigError, match="data: the section is missing"):
        run("config", "check", path)
    # a sample of NNCF names a network, which is the user's own key
    path.write_text('{"model": "resnet50", "compression": {"algorithm": "quantization"}}')
    assert "no fault. Your own keys: model." in run("config", "check", path)


def test_check_takes_what_names_code_for_its_data_for_a_task(tmp_path: Path) -> None:
    path = tmp_path / "task.json"
    path.write_text('{"modle": {"factory": "net.py:model"}, "data": "net.py:data"}')
    with pytest.raises(ConfigError, match="'model' is missing"):
        run("config", "check", path)


def test_check_makes_the_schemes_of_configs_that_are_no_tasks(tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    scheme = '{"name": "Quantize", "dtype": "float17"}'
    lc = f'{{"algorithm": "lc", "schemes": {scheme}}}'
    path.write_text(f'{{"compression": {lc}}}')
    with pytest.raises(ConfigError, match=r"schemes\[0\]: There is no floating dtype 'float17'"):
        run("config", "check", path)
    path.write_text(f'{{"search": {{"objective": "macs", "schemes": [{scheme}]}}}}')
    with pytest.raises(
        ConfigError, match=r"search.schemes\[0\]: There is no floating dtype 'float17'"
    ):
        run("config", "check", path)


def test_check_lists_every_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(
        '{"compression": [{"algorithm": "quantizatoin"}, {"algorithm": "filter_pruning", '
        '"params": {"pruning_target": 40}}]}'
    )
    with pytest.raises(ConfigError, match=r"(?s)2 faults.*'quantization'.*Write 0.3 for 30 %"):
        run("config", "check", path)
    path.write_text('{"compression": {"algorithm": "quantization"}, "epochs": 3}')
    assert "Your own keys: epochs" in run("config", "check", path)
    assert json.loads(run("config", "check", path, "--json"))["target_device"] == "ANY"
    with pytest.raises(ConfigError, match="'model' is missing"):
        run("config", "check", path, "--task")


def test_the_command_that_init_tells_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / "my tasks"
    folder.mkdir()
    told = run("config", "init", folder / "task.py").partition("now: ")[2]
    assert shlex.split(told) == ["nncfx", "compress", f"{folder}/task.py", "--dry-run"]


@pytest.mark.parametrize("kind", ["--search", "--no-search"])
def test_the_python_that_init_writes_is_formatted(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "task.py"
    run("config", "init", file, kind)
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--check", file]
    assert subprocess.run(command, check=False).returncode == 0

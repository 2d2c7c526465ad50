"""The command line says what went wrong in one paragraph, and never shows a traceback."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import nncfx
from nncfx.cli.faults import fault_text
from nncfx.cli.main import app
from nncfx.errors import StorageError


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["nncfx", *arguments])
    with pytest.raises(SystemExit) as end:
        app()
    return end.value.code


def test_a_mistake_is_one_paragraph_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "report", "no-such.json") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("StorageError: There is no file 'no-such.json'")
    assert "Traceback" not in err


def test_an_unknown_command_is_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "reprot") == 2


def test_a_long_message_is_wrapped_and_a_path_stays_whole() -> None:
    path = "/a-very-long-folder/" * 6 + "x.json"
    lines = fault_text(StorageError(f"The file {path} is of another kind. " * 2)).splitlines()
    assert len(lines) > 2
    assert sum(path in line for line in lines) == 2


def test_without_typer_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['typer'] = None; sys.argv = ['nncfx', 'version']\n"
        "from nncfx.cli.main import app; app()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install 'nncfx[cli]'" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_the_line_of_users_code_that_raised_an_error_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below it, torch and Python raise in code of their own."""
    code = """
import json
from torch import nn
def net():
    return nn.Sequential(nn.Linear(3, 3))
class Odd(nn.Linear):
    def forward(self, x):
        return json.loads("{")
def odd():
    return Odd(3, 3)
"""
    (tmp_path / "net_of_lines.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "inspect", "net_of_lines.py:odd", "--input-shape", "1x3") == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("TracingError: Odd refuses")
    assert told[-1] == '  net_of_lines.py, line 8: return json.loads("{")'
    # nothing of the user's raised it
    assert run(monkeypatch, "inspect", "net_of_lines.py:net", "--input-shape", "1x9") == 2
    assert "net_of_lines.py" not in capsys.readouterr().err


def test_the_version_needs_no_typer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.setattr(sys, "argv", ["nncfx", "--version"])
    app()
    assert capsys.readouterr().out == f"nncfx {nncfx.__version__}\n"


def test_a_warning_is_a_line_without_the_code_that_gave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    code = "import warnings\ndef net():\n    warnings.warn('The net is old.')\n"
    (tmp_path / "net_of_warnings.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert run(monkeypatch, "inspect", "net_of_warnings.py:net") == 2
    assert caplog.messages == ["The net is old."]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--version", "version"])
@pytest.mark.parametrize(
    ("output", "told"),
    [(">/dev/full", "standard output takes nothing: No space"), (">&-", "is closed")],
)
def test_a_standard_output_that_takes_nothing_is_told_in_a_line(
    unbuffered: str, command: str, output: str, told: str
) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m nncfx {command} {output}', sys.executable],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert told in done.stderr

"""`nncfx diff` names what differs, and refuses files of two kinds."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nncfx.cli.commands import application
from nncfx.errors import ArgumentError


def test_configs_differ_by_their_paths(tmp_path: Path) -> None:
    one, other = tmp_path / "a.json", tmp_path / "b.json"
    one.write_text('{"search": {"eps": 0.1, "schemes": [{"name": "Prune"}]}, "same": 1}')
    other.write_text('{"search": {"eps": 0.2, "schemes": [{"name": "Prune"}]}, "same": 1}')
    arguments = ["diff", str(one), str(other), "--json"]
    result = CliRunner().invoke(application, arguments, catch_exceptions=False)
    expected = [{"name": "search.eps", "before": 0.1, "after": 0.2}]
    assert json.loads(result.output)["differences"] == expected
    (tmp_path / "c.onnx").write_bytes(b"")
    with pytest.raises(ArgumentError, match="files of one kind"):
        CliRunner().invoke(
            application, ["diff", str(one), str(tmp_path / "c.onnx")], catch_exceptions=False
        )

"""`nncfx diff` names what differs, and refuses files of two kinds."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import nncfx
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


@pytest.mark.parametrize("ending", ["nncfx", "safetensors"])
def test_integers_differ_from_floats_by_what_they_stand_for(tmp_path: Path, ending: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4)).eval()
    small = nncfx.quantize(model, [torch.randn(4, 8)])
    one, other = tmp_path / "a.safetensors", tmp_path / f"b.{ending}"
    save_file(model.state_dict(), one)
    nncfx.save(other, small)
    arguments = ["diff", str(one), str(other), "--json"]
    result = CliRunner().invoke(application, arguments, catch_exceptions=False)
    rows = {row["name"]: row for row in json.loads(result.output)["differences"]}
    step = model[0].weight.detach().abs().amax(1) / 127
    # half a step of the grid at most, and of so many weights some are nearly as far
    assert step.max() / 4 < rows["0.weight"]["max_difference"] <= step.max() * 0.51

"""`nncfx inspect` counts what a file or a model holds."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import nncfx
from command_line import run
from nncfx.errors import ArgumentError, ConfigError, StorageError

X = torch.cat([torch.eye(3), -torch.eye(3)])


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twolayers.py").write_text(
        "from torch import nn\n"
        "def net(): return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))\n"
    )
    return "twolayers.py:net"


def test_a_model_shows_operations_matches_groups_and_bytes(code: str, tmp_path: Path) -> None:
    config = tmp_path / "c.json"
    item = {"algorithm": "magnitude_sparsity", "ignored_scopes": ["{re}.*Linear\\[2\\].*"]}
    config.write_text(json.dumps({"compression": item}))
    shape = ("--input-shape", "5x3")
    found = json.loads(run("inspect", code, *shape, "--config", config, "--json"))
    assert found["bytes"] == 4 * found["parameters"] == 4 * (12 + 4 + 8 + 2)
    first, relu, last = found["operations"]
    assert (first["macs"], relu["macs"], last["macs"]) == (12, 0, 8)
    assert (first["algorithms"], last["algorithms"]) == (["magnitude_sparsity"], [])
    hidden, outputs = found["channel_groups"]
    assert (hidden["groups"], hidden["fixed"], outputs["groups"]) == (4, "", 2)
    assert "output" in outputs["fixed"]
    assert "26 parameters" in run("inspect", code, *shape)


def test_a_model_with_the_weights_of_a_quantized_one_shows_its_quantizers(
    code: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = nncfx.quantize(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), [X])
    nncfx.save(tmp_path / "q.nncfx", model)
    options = ("--weights", tmp_path / "q.nncfx", "--input-shape", "1x3", "--json")
    found = json.loads(run("inspect", code, *options))
    assert found["parameters"] == 12 + 4 + 8 + 2
    algorithms = [one["algorithms"] for one in found["operations"]]
    assert algorithms[0] == algorithms[2] == ["quantization"]
    assert found["operations"][0]["output"] == [[1, 4]]


def test_a_shape_of_terabytes_is_refused(code: str) -> None:
    with pytest.raises(ArgumentError, match="asks for inputs of 12,000,000,000,000 bytes"):
        run("inspect", code, "--input-shape", "1000000000000x3")


def test_files_are_told_apart(code: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4, bias=False))
    nn.init.zeros_(model[0].weight)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    found = json.loads(run("inspect", tmp_path / "w.pt", "--json"))
    assert found["tensors"] == [
        {"name": "0.weight", "shape": [4, 3], "dtype": "float32", "bytes": 48, "zeros": 1.0}
    ]
    nncfx.storage.save(tmp_path / "w.nncfx", model)
    assert json.loads(run("inspect", tmp_path / "w.nncfx", "--json"))["tensors"]
    weights = ("--weights", tmp_path / "w.pt")
    with pytest.raises(StorageError, match=r"0.bias"):
        run("inspect", code, "--input-shape", "1x3", *weights)
    with pytest.raises(ArgumentError, match="is a file"):
        run("inspect", tmp_path / "w.pt", *weights)
    with pytest.raises(StorageError, match="There is no file"):
        run("inspect", tmp_path / "none.pt")
    with pytest.raises(ArgumentError, match="Give --input-shape"):
        run("inspect", code)
    with pytest.raises(ConfigError, match="there is no file"):
        run("inspect", "none.py:net", "--input-shape", "1")


def test_damage_of_a_file_names_it(code: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    nncfx.storage.save(tmp_path / "whole.nncfx", model)
    data = (tmp_path / "whole.nncfx").read_bytes()
    damaged = {
        "cut": data[:-5],
        "head": data[:40] + b"??" + data[42:],
        "tensors": data[:-5] + b"?" + data[-4:],
    }
    for name, content in damaged.items():
        file = tmp_path / f"{name}.nncfx"
        file.write_bytes(content)
        for command in (
            ["inspect", file],
            ["diff", tmp_path / "whole.nncfx", file],
            ["inspect", code, "--input-shape", "1x3", "--weights", file],
        ):
            with pytest.raises(StorageError, match=rf"'.*{name}\.nncfx' is (damaged|truncated)"):
                run(*command)
    (tmp_path / "none.pt").write_bytes(b"")
    with pytest.raises(StorageError, match=r"none\.pt' .*\(it is empty\)"):
        run("inspect", tmp_path / "none.pt")

"""`nncfx export` and `quantize` write what the functions of these names make."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import nncfx
from command_line import run
from nncfx.cli.commands import application
from nncfx.errors import ArgumentError, NNCFXError
from nncfx.export import summarize_onnx


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what names a model; its data is beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wide.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def net():\n"
        "    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))\n"
        "def batches(): return [(torch.randn(8, 32), torch.zeros(8)) for _ in range(4)]\n"
        "def none(): return []\n"
        "def yielded(): yield from (torch.ones(8, 32) * (9 - each) for each in range(2))\n"
        "def listed(): return list(yielded())\n"
        "def rows(): return torch.randn(8, 32)\n"
        "def array(): return rows().numpy()\n"
        "def lost(): return open('nowhere.npz')\n"
    )
    return "wide.py:net"


def test_export_and_diff_tell_what_quantizing_changed(code: str, tmp_path: Path) -> None:
    shape = ("--input-shape", "1x32")
    run("export", code, *shape, "--output", "a.onnx")
    data = ("--data", "wide.py:batches")
    made = json.loads(run("quantize", code, *data, "--output", "b.onnx", "--json"))
    assert made["size_bytes"] == (tmp_path / "b.onnx").stat().st_size
    integers = 32 * 64 + 64 * 2 + 64 + 2  # weights, and a zero point for each output
    assert summarize_onnx("b.onnx").weight_bytes["int8"] == integers
    found = json.loads(run("diff", "a.onnx", "b.onnx", "--json"))["differences"]
    rows = {one["name"]: (one["before"], one["after"]) for one in found}
    assert rows["int8 bytes"] == (None, integers)
    assert "input input" not in rows
    assert "hold the same" in run("diff", "a.onnx", "a.onnx")


def test_a_quantized_model_is_exported_for_its_target(code: str) -> None:
    Path("quantized.py").write_text(
        "import nncfx, wide\n"
        "def net(): return nncfx.quantize(wide.net(), wide.batches(), target='openvino')\n"
    )
    made = json.loads(run("export", "quantized.py:net", "--input-shape", "1x32", "--json"))
    assert made["target"] == "openvino"
    assert json.loads(run("export", code, "--input-shape", "1x32", "--json"))["target"] == (
        "onnxruntime"
    )


def test_weights_come_from_a_checkpoint_and_the_file_is_read_again(
    code: str, tmp_path: Path
) -> None:
    from torch import nn  # noqa: PLC0415 (as the code does)

    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
    torch.save(model.state_dict(), tmp_path / "w.pt")
    run("quantize", code, "--weights", "w.pt", "--data", "wide.py:batches", "--output", "q.nncfx")
    x = torch.randn(4, 32)
    read = nncfx.load("q.nncfx", nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2)))[1]
    assert torch.allclose(read.eval()(x), model(x), atol=0.05)
    weights = ("--weights-only", "--bits", "4", "--input-shape", "1x32")
    run("quantize", code, *weights, "--output", "w.safetensors")
    assert (tmp_path / "w.safetensors").stat().st_size < 0.6 * 4 * 32 * 64
    torch.save({name: one + 1 for name, one in model.state_dict().items()}, tmp_path / "v.pt")
    found = json.loads(run("diff", "w.pt", "v.pt", "--json"))["differences"]
    assert [one["max_difference"] for one in found] == pytest.approx([1.0] * 4, rel=1e-5)


def test_a_generator_of_batches_is_read_from_its_first_on(code: str) -> None:
    files = []
    for data in ("wide.py:yielded", "wide.py:listed"):
        run("quantize", code, "--data", data, "--output", "q.nncfx")
        files.append(Path("q.nncfx").read_bytes())
    assert files[0] == files[1]


def test_weights_of_a_model_of_token_ids_are_quantized_by_a_batch(code: str) -> None:
    """Shapes would give floats; the table of 50 rows of 32 bytes is most of the file."""
    assert code
    Path("words.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def net(): return nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 2))\n"
        "def batches(): return [torch.randint(50, (2, 7)) for _ in range(2)]\n"
    )
    weights = ("--weights-only", "--data", "words.py:batches", "--output", "w.nncfx", "--json")
    made = json.loads(run("quantize", "words.py:net", *weights))
    assert 50 * 32 <= made["size_bytes"] < 2 * 50 * 32


def test_the_bits_that_weights_have_are_told(code: str) -> None:
    assert code
    Path("conv.py").write_text(
        "from torch import nn\n"
        "def net():\n"
        "    return nn.Sequential(\n"
        "        nn.Conv2d(3, 8, 3), nn.Conv2d(8, 64, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(),\n"
        "        nn.Linear(64, 64),\n"
        "    )\n"
    )
    shape = ("--input-shape", "1x3x8x8", "--output", "w.nncfx")
    text = run("quantize", "conv.py:net", "--weights-only", "--bits", "4", *shape)
    # convolutions have 8 bits whatever is asked for
    assert "weights of 4 bits: 1, weights of 8 bits: 2" in text.replace("\n", " ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--bits", "4", "--preset", "fast"), {"4": 2}),
        (("--ignored-scope", "{function}relu"), {"8": 2}),
        (("--ignored-scope", r"{re}Linear\[2"), {"8": 1}),
        (("--weights-only", "--bits", "4", "--method", "gptq", "--group-size", "16"), {"4": 2}),
    ],
)
def test_what_python_takes_the_command_takes(
    code: str, options: tuple[str, ...], expected: dict[str, int]
) -> None:
    more = ("--data", "wide.py:batches", "--output", "w.nncfx", "--json")
    assert json.loads(run("quantize", code, *more, *options))["weights_by_bits"] == expected


def test_mistakes_are_told(code: str) -> None:
    with pytest.raises(ArgumentError, match="names no data"):
        run("quantize", code, "--input-shape", "1x32")
    with pytest.raises(ArgumentError, match="none of the endings"):
        run("quantize", code, "--output", "a.bin")
    with pytest.raises(ArgumentError, match="--method has no effect without --weights-only"):
        run("quantize", code, "--method", "hqq", "--data", "wide.py:batches")
    with pytest.raises(ArgumentError, match="--preset has no effect with --weights-only"):
        run("quantize", code, "--weights-only", "--preset", "fast", "--input-shape", "1x32")
    with pytest.raises(ArgumentError, match="There is no preset 'quick'"):
        run("quantize", code, "--preset", "quick", "--data", "wide.py:batches")
    with pytest.raises(ArgumentError, match="gave a int"):
        run("quantize", code, "--data", "wide.py:torch.get_num_threads")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("export", "wide.py:net", "--output", "o.onxx"), "'o.onxx' does not end in .onnx"),
        (("quantize", "wide.py:net"), "names no data"),
        (("quantize", "wide.py:net", "--data", "a.csv"), "A file is read by a function of yours"),
        (("quantize", "wide.py:net", "--data", "wide.py:none"), "--data gave no batch"),
        (("quantize", "wide.py:net", "--data", "wide.py:rows"), "gave a Tensor; it must return b"),
        (("quantize", "wide.py:net", "--data", "wide.py:array"), "gave a ndarray; it must return"),
        (
            ("quantize", "wide.py:net", "--data", "wide.py:lost"),
            r"--data: 'wide.py:lost' raised FileNotFoundError: .*\(wide.py, line 12\). Fix it",
        ),
        (("quantize", "a.onnx", "--data", "wide.py:batches"), "is an ONNX file, and nncfx"),
        (("report", "."), "no run has ended there.*nncfx status . --html"),
    ],
)
def test_a_mistake_is_told_with_its_fix(
    code: str, arguments: tuple[str, ...], message: str
) -> None:
    assert code
    Path("a.csv").write_text("1,2\n")
    with pytest.raises(NNCFXError, match=message):
        run(*arguments)


@pytest.mark.parametrize("command", ["export", "quantize"])
def test_a_file_behind_the_model_is_told_of_the_option(code: str, command: str) -> None:
    result = CliRunner().invoke(application, [command, code, "o.onnx"])
    assert result.exit_code == 2
    assert "--output FILE" in " ".join(result.output.split())


def test_sizes_of_a_shape_may_stand_between_commas(code: str) -> None:
    assert json.loads(run("export", code, "--input-shape", "1,32", "--json"))["inputs"]


@pytest.mark.usefixtures("code")
def test_a_model_of_token_ids_is_exported_by_a_config_that_names_its_data() -> None:
    Path("words.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def net(): return nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2))\n"
        "def data(): return [(torch.ones(2, 5).long(), torch.ones(2))]\n"
        "def loaders(): return {'train': data(), 'validation': data()}\n"
    )
    with pytest.raises(ArgumentError, match="For token ids name a config"):
        run("export", "words.py:net")
    Path("words.json").write_text(
        json.dumps({"model": "words.py:net", "data": "words.py:loaders", "export": {}})
    )
    assert json.loads(run("export", "words.json", "--json"))["inputs"]

"""pack, unpack and inspect-file: what they write, and what they say."""

import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from command_line import run
from nncfx.errors import ArgumentError, StorageError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    weight = rng.choice([0.0, 0.0, 0.0, 0.5, -0.5], (100, 100)).astype(np.float32)
    save_file({"w": weight, "b": np.array([-0.0, 0.0], np.float32)}, tmp_path / "a.safetensors")
    return tmp_path / "a.safetensors"


def test_pack_writes_beside_and_says_how_small(source: Path) -> None:
    text = run("pack", source)
    assert (source.parent / "a.nncfx").stat().st_size < 2000
    assert f"smaller than {source}" in text


def test_unpack_gives_the_same_tensors(source: Path) -> None:
    run("pack", source)
    run("unpack", source.parent / "a.nncfx", "--output", source.parent / "b.safetensors")
    before, after = load_file(source), load_file(source.parent / "b.safetensors")
    assert before.keys() == after.keys()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


def test_files_are_packed_read_and_unpacked_without_torch(source: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from nncfx.cli.commands import application\n"
        "application(sys.argv[1:], standalone_mode=False)\n"
    )
    packed, again = source.with_suffix(".nncfx"), source.with_name("b.safetensors")
    commands = (["pack", source], ["inspect-file", packed], ["unpack", packed, "--output", again])
    for command in commands:
        subprocess.run([sys.executable, "-c", code, *command], check=True, timeout=120)
    assert load_file(again)["w"].tobytes() == load_file(source)["w"].tobytes()


def test_negative_zeros_go_when_asked(source: Path) -> None:
    run("pack", source, "--no-signed-zeros")
    run("unpack", source.parent / "a.nncfx", "--output", source)
    assert not np.signbit(load_file(source)["b"]).any()


def test_a_file_that_was_not_named_is_not_written_over(source: Path) -> None:
    run("pack", source, "--no-signed-zeros")
    before = source.read_bytes()
    with pytest.raises(ArgumentError, match=r"exists already.*--output"):
        run("unpack", source.parent / "a.nncfx")
    assert source.read_bytes() == before
    packed = (source.parent / "a.nncfx").read_bytes()
    with pytest.raises(ArgumentError, match=r"exists already.*--output"):
        run("pack", source)
    assert (source.parent / "a.nncfx").read_bytes() == packed
    run("pack", source, "--force")
    assert (source.parent / "a.nncfx").read_bytes() != packed  # with its signs of zeros


def test_inspect_file_shows_checksums(source: Path) -> None:
    run("pack", source)
    text = run("inspect-file", source.parent / "a.nncfx")
    state = load_file(source)
    assert len(state) > 1
    for one in state.values():  # of each tensor, though all share a segment of the file
        assert f"{zlib.crc32(one.tobytes()):08x}" in text
    assert "1.37" in text  # the entropy of 3/5, 1/5 and 1/5, in bits


def test_inspect_file_shows_names_of_hooks_with_their_brackets(tmp_path: Path) -> None:
    save_file({"Net[fc]": np.zeros(2, np.float32)}, tmp_path / "a.safetensors")
    run("pack", tmp_path / "a.safetensors")
    text = run("inspect-file", tmp_path / "a.nncfx")
    assert "Net[fc]" in text.replace("\n", "")


def test_a_file_does_not_replace_itself(source: Path) -> None:
    with pytest.raises(ArgumentError, match="would replace itself"):
        run("pack", source, "--output", source)


def test_a_file_is_not_written_under_the_ending_of_another_kind(source: Path) -> None:
    packed = source.parent / "a.nncfx"
    run("pack", source)
    for command, file, output, ending in (
        ("pack", source, "b.foo", "nncfx"),
        ("unpack", packed, "b.nncfx", "safetensors"),
    ):
        with pytest.raises(ArgumentError, match=rf"does not end in .{ending}.*b.{ending}"):
            run(command, file, "--output", source.parent / output)
        assert not (source.parent / output).exists()


def test_a_file_that_is_not_there_is_our_error(tmp_path: Path) -> None:
    for command in ("pack", "unpack", "inspect-file"):
        with pytest.raises(StorageError, match="There is no file"):
            run(command, tmp_path / "none.nncfx")


@pytest.mark.parametrize(
    ("command", "name", "way"),
    [
        ("benchmark", "a.nncfx", "nncfx export file.py:function"),
        ("pack", "a.pt", "safetensors.torch.save_file"),
        ("unpack", "a.safetensors", "nncfx pack"),
        ("inspect-file", "a.onnx", "nncfx inspect shows"),
        ("report", "a.nncfx", "the folder of a run"),
    ],
)
def test_a_file_of_another_kind_is_told_with_the_way(
    tmp_path: Path, command: str, name: str, way: str
) -> None:
    (tmp_path / name).write_bytes(b"whatever it holds")
    with pytest.raises(ArgumentError, match=rf"{name}' is not a \.\w+ file(.|\n)*{way}"):
        run(command, tmp_path / name)


def test_a_memory_limit_holds(source: Path) -> None:
    run("pack", source)
    with pytest.raises(StorageError, match="pass max_bytes=40000"):
        run("unpack", source.parent / "a.nncfx", "--output", source, "--max-bytes", "1000")

"""What is said to be written is on the disk: the file before its name, the name before more."""

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import nncfx
from nncfx.compressor.trials.trial_weights import TrialStates
from nncfx.runtimes.protocol.engine_cache import kept_engine
from nncfx.storage.formats.whole_file import write_text, write_whole


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is fsync'ed and renamed, in order, by name."""
    seen: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        seen.append(("fsync", Path(f"/proc/self/fd/{handle}").readlink().name))
        fsync(handle)

    def replaced(source: Path, target: Path) -> None:
        seen.append(("replace", Path(target).name))
        replace(source, target)

    monkeypatch.setattr("os.fsync", synced)
    monkeypatch.setattr("os.replace", replaced)
    return seen


def one_file(path: Path) -> None:
    write_whole(path, [b"new"])


def a_trial(path: Path) -> None:
    TrialStates(path.parent).save(path.stem, {"w": torch.zeros(2)})


def a_checkpoint(path: Path) -> None:
    model = nncfx.wrap(torch.nn.Linear(2, 2), torch.zeros(1, 2))
    nncfx.save(path, model)


def an_engine(path: Path) -> None:
    kept_engine(path.parent, {"runtime": "r"}, lambda: b"engine")


def a_text(path: Path) -> None:
    write_text(path, "new")


@pytest.mark.parametrize("write", [one_file, a_trial, a_checkpoint, an_engine, a_text])
def test_every_writer_syncs_the_file_before_its_name_and_the_folder_after(
    tmp_path: Path, calls: list[tuple[str, str]], write: Callable[[Path], None]
) -> None:
    write(tmp_path / "a.safetensors")
    (file,) = tmp_path.iterdir()
    assert [kind for kind, _ in calls] == ["fsync", "replace", "fsync"]
    assert [name for _, name in calls[1:]] == [file.name, tmp_path.name]


def test_an_exported_graph_is_on_disk_before_its_name_is(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    pytest.importorskip("onnxscript")
    nncfx.export_onnx(torch.nn.Linear(2, 2).eval(), tmp_path / "m.onnx", torch.zeros(1, 2))
    ours = [call for call in calls if call[1] in ("m.onnx", tmp_path.name)]
    expected = [("fsync", "m.onnx"), ("replace", "m.onnx"), ("fsync", tmp_path.name)]
    assert ours == expected


def limited(write: Callable[[Path], None], path: Path) -> int:
    """Write in a process that may not write more than 10 bytes to a file: a disk that is full."""
    process = os.fork()
    if not process:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        try:
            write(path)
        except nncfx.errors.StorageError:
            os._exit(3)
        except BaseException:  # noqa: BLE001 (told by the exit code)
            os._exit(4)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def much(path: Path) -> None:
    write_whole(path, [b"new" * 10])


def a_long_text(path: Path) -> None:
    write_text(path, "new" * 10)


@pytest.mark.parametrize("write", [much, a_trial, a_checkpoint, an_engine, a_long_text])
def test_a_full_disk_leaves_what_was_there_and_nothing_more(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"old")
    assert limited(write, path) == 3
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [(path.name, b"old")]

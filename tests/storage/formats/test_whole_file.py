"""Files appear whole or not at all."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from nncfx.errors import StorageError
from nncfx.storage.formats.whole_file import (
    check_source,
    open_file,
    read_object,
    write_whole,
    writing,
    writing_files,
)


def test_missing_folders_of_a_failed_write_go_again(tmp_path: Path) -> None:
    for write in (writing, writing_files):
        with pytest.raises(RuntimeError), write(tmp_path / "a" / "b" / "file"):
            raise RuntimeError
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def full(_descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="cannot be written \\(disk full\\)"):
        write_whole(path, [b"new"])
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("a", b"old")]


def test_missing_folders_are_made(tmp_path: Path) -> None:
    write_whole(tmp_path / "a" / "b" / "c.nncfx", [b"new"])
    assert (tmp_path / "a" / "b" / "c.nncfx").read_bytes() == b"new"


@pytest.mark.parametrize("write", [writing, writing_files])
def test_whoever_may_read_and_write_is_as_the_umask_or_the_old_file_says(
    tmp_path: Path, write: Callable[[Path], AbstractContextManager[Path]]
) -> None:
    path = tmp_path / "a"

    def written() -> int:
        with write(path) as draft:
            file = draft if write is writing else draft / "a"
            # some libraries write for the owner alone
            file.unlink(missing_ok=True)
            file.touch(0o600)
        return path.stat().st_mode & 0o777

    before = os.umask(0o027)
    try:
        assert written() == 0o640
        path.chmod(0o604)
        assert written() == 0o604
    finally:
        os.umask(before)


@pytest.mark.parametrize("write", [writing, writing_files])
def test_a_folder_or_a_pipe_stays_where_it_is(
    tmp_path: Path, write: Callable[[Path], AbstractContextManager[Path]]
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="is a folder"), write(tmp_path / "folder"):
        pass
    with pytest.raises(StorageError, match="is a device or a pipe"), write(tmp_path / "pipe"):
        pass
    assert (tmp_path / "pipe").is_fifo()


def test_a_path_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="Use a path that you may write to"):
        write_whole(tmp_path / "file" / "a.nncfx", [b"new"])


def test_a_file_that_is_not_there_is_our_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"none.nncfx' cannot be read .* Check the path"):
        open_file(tmp_path / "none.nncfx")


def test_parts_are_written_in_order_and_counted(tmp_path: Path) -> None:
    saved = write_whole(tmp_path / "a", iter([b"ab", b"", b"c"]))
    assert saved.path.read_bytes() == b"abc"
    assert saved.size_bytes == 3


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    process = os.fork()
    if not process:
        with writing(tmp_path / "a") as draft:
            draft.write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(process, 0)
    assert sorted(entry.read_bytes() for entry in tmp_path.iterdir()) == [b"", b"half"]  # the lock
    write_whole(tmp_path / "a", [b"new"])
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("a", b"new")]


def test_writers_of_one_path_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def write(letter: bytes) -> None:
        for _ in range(20):
            write_whole(path, (letter for _ in range(500)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, [b"a", b"b", b"c", b"d"]))
    content = path.read_bytes()
    assert content == content[:1] * 500
    assert list(tmp_path.iterdir()) == [path]


def test_writers_wait_for_one_whose_library_renames_onto_the_draft(tmp_path: Path) -> None:
    def write(letter: bytes) -> None:
        for _ in range(20):
            with writing(tmp_path / "a") as draft:
                own = tmp_path / f"own-{letter!r}"
                own.write_bytes(letter)
                own.replace(draft)  # as safetensors does
                time.sleep(0.001)
                assert draft.read_bytes() == letter

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, [b"a", b"b", b"c", b"d"]))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_files_of_one_write_appear_together_and_leave_no_draft(tmp_path: Path) -> None:
    (tmp_path / ".m.onnx.parts").mkdir()
    (tmp_path / ".m.onnx.parts" / "left").write_bytes(b"by a process that was killed")
    with writing_files(tmp_path / "m.onnx") as folder:
        (folder / "m.onnx").write_bytes(b"graph")
        (folder / "m.onnx.data").write_bytes(b"weights")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]


@pytest.mark.parametrize("text", ["", '{"a": 1', "[1]"])
def test_a_file_that_holds_no_object_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StorageError, match=r"run '.*run\.json' is"):
        read_object(path, "run")


def test_a_folder_in_place_of_a_file_is_told_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "model.nncfx").touch()
    with pytest.raises(StorageError, match=r"is a folder.*It holds model.nncfx. Name the file"):
        check_source(tmp_path)
    with pytest.raises(StorageError, match="There is no file"):
        check_source(tmp_path / "other.nncfx")

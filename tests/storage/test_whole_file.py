"""Files appear whole or not at all."""

from pathlib import Path

import pytest

from nncfx.errors import StorageError
from nncfx.storage.whole_file import write_whole


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
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


def test_a_path_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="Use a path that you may write to"):
        write_whole(tmp_path / "file" / "a.nncfx", [b"new"])

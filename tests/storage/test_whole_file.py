"""Files appear whole or not at all."""

from pathlib import Path

import pytest

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
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, b"new")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("a", b"old")]

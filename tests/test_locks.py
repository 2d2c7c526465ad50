"""Locks keep processes apart, and end with them."""

import subprocess
import sys
from pathlib import Path

import pytest

from nncfx.locks import is_locked, lock

_HOLDS = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print(1, flush=True)
sys.stdin.read()
"""


def test_a_lock_of_another_process_is_not_taken_until_that_ends(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.touch()
    assert not is_locked(file)
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDS, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        with file.open() as handle:
            assert not lock(handle.fileno())
        assert is_locked(file)
        other.communicate()
    with file.open() as handle:
        assert lock(handle.fileno(), wait=True)
        assert is_locked(file)
    assert not is_locked(file)


def test_where_there_are_no_locks_nobody_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    file = tmp_path / "lock"
    with file.open("w") as handle:
        assert lock(handle.fileno())
        assert not is_locked(file)

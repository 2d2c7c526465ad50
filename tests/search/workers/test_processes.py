"""Processes of this machine evaluate, die, and are held still."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from nncfx.errors import ArgumentError, MachineError
from nncfx.search import Done, LocalExecutor


def task(argument: tuple[str, Path]) -> int:
    """Do what `argument` says; the file counts."""
    what, path = argument
    if what == "die" and not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "starve":
        raise MemoryError
    for _ in range(400 if what == "count" else 0):
        with path.open("a") as file:
            file.write(".")
        time.sleep(0.01)
    return os.getpid()


def test_workers_die_are_replaced_starve_and_end(tmp_path: Path) -> None:
    with LocalExecutor(2) as executor:
        executor.open(task)
        executor.submit(7, ("die", tmp_path / "died"), "seven")
        executor.submit(8, ("tell", tmp_path), "eight")
        found: dict[int, Done] = {}
        while len(found) < 2:
            found |= {done.key: done for done in executor.wait()}
        assert found[7].attempt is None  # lost, and the other was not
        other = found[8].attempt
        assert other is not None
        assert other.value != os.getpid()
        executor.submit(7, ("die", tmp_path / "died"), "seven")
        (again,) = executor.wait()
        assert again.attempt is not None  # the second time it lives

        executor.submit(9, ("starve", tmp_path), "nine")
        with pytest.raises(MachineError, match="ended nine"):
            executor.wait()
    with pytest.raises(ProcessLookupError):
        os.kill(other.value, 0)


def test_workers_stand_still_while_time_is_measured(tmp_path: Path) -> None:
    with LocalExecutor(1) as executor:
        executor.open(task)
        counted = tmp_path / "counted"
        executor.submit(10, ("count", counted), "ten")
        while not counted.exists():
            time.sleep(0.01)
        with executor.quiet():
            time.sleep(0.1)  # until it stands
            before = counted.stat().st_size
            time.sleep(0.3)
            assert counted.stat().st_size == before
        deadline = time.monotonic() + 30
        while counted.stat().st_size == before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert counted.stat().st_size > before


def test_what_no_process_can_read_is_refused_before_any_starts() -> None:
    lock = threading.Lock()
    with LocalExecutor(1) as executor, pytest.raises(ArgumentError, match="cannot be passed"):
        executor.open(lambda _: lock)


def test_a_worker_without_threads_is_refused() -> None:
    with pytest.raises(ArgumentError, match="threads is 0"):
        LocalExecutor(1, threads=0)

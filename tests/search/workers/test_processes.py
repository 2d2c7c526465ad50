"""Processes of this machine evaluate, die, and are held still."""

import os
import signal
import subprocess
import sys
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


def test_a_worker_that_died_idle_is_replaced(tmp_path: Path) -> None:
    with LocalExecutor(1) as executor:
        executor.open(task)
        executor.submit(1, ("tell", tmp_path), "one")
        (done,) = executor.wait()
        os.kill(done.attempt.value, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while status(done.attempt.value) and time.monotonic() < deadline:  # until its pool knows
            time.sleep(0.05)
        executor.submit(2, ("tell", tmp_path), "two")
        (done,) = executor.wait()
        assert done.attempt.value != os.getpid()


DRIVER = """
import pathlib, sys, time
from nncfx.search import LocalExecutor
from tests.search.workers.test_processes import task
if __name__ == "__main__":
    with LocalExecutor(1) as executor:
        executor.open(task)
        executor.submit(1, ("tell", pathlib.Path()), "one")
        (done,) = executor.wait()
        executor.submit(2, ("count", pathlib.Path(sys.argv[1])), "two")
        with executor.quiet():
            print(done.attempt.value, flush=True)
            time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels end no stopped process")
def test_a_worker_that_stands_still_ends_with_its_driver(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    with subprocess.Popen(
        [sys.executable, script, tmp_path / "counted"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        start_new_session=True,
    ) as driver:
        worker = int(driver.stdout.readline())
        driver.kill()
        deadline = time.monotonic() + 20
        while (state := status(worker)) not in {"", "Z"} and time.monotonic() < deadline:
            time.sleep(0.05)
        if state not in {"", "Z"}:
            os.kill(worker, signal.SIGKILL)
        assert state in {"", "Z"}


def status(process: int) -> str:
    """Return the letter of a process's state, "" once it is away."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return ""


def test_what_no_process_can_read_is_refused_before_any_starts() -> None:
    lock = threading.Lock()
    with LocalExecutor(1) as executor, pytest.raises(ArgumentError, match="cannot be passed"):
        executor.open(lambda _: lock)


def test_a_worker_without_threads_is_refused() -> None:
    with pytest.raises(ArgumentError, match="threads is 0"):
        LocalExecutor(1, threads=0)

"""Python programs in processes of their own, forked from one that has imported torch.

What takes seconds to import is imported once a test run; nncfx is imported by each program anew.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

LONGEST_S = 900.0

METHOD = "forkserver"
"""How processes are started, as `multiprocessing` calls it."""

_SERVER = multiprocessing.get_context(METHOD)
_SERVER.set_forkserver_preload([
    "torch._dynamo", "torch.distributed.fsdp", "onnxscript", "botorch", "sklearn.datasets",
    "transformers", "numba", "typer", "jinja2",
])  # fmt: skip
"""Those that are not installed are left out."""


class Told(NamedTuple):
    """What a program wrote."""

    stdout: str
    stderr: str


class Program:
    """A module, or the file of a name that ends in .py, as it runs in `folder`."""

    def __init__(self, folder: Path, program: str | Path, *arguments: str | Path) -> None:
        self._files = [tempfile.NamedTemporaryFile() for _ in Told._fields]  # noqa: SIM115
        self.process = _SERVER.Process(
            target=_run,
            args=(folder, [one.name for one in self._files], str(program), *map(str, arguments)),
        )
        self.process.start()

    def told(self) -> Told:
        """Return what it has written until now."""
        return Told(*(Path(one.name).read_text(encoding="utf-8") for one in self._files))

    def ended(self, code: int = 0) -> Told:
        """Wait for its end, which has this exit code, and return what it wrote."""
        self.process.join(LONGEST_S)
        told = self.told()
        assert self.process.exitcode == code, "".join(told)[-2000:]
        return told

    def wait_for(self, is_time: Callable[[], bool]) -> None:
        """Wait until it `is_time`, before which it does not end."""
        deadline = time.monotonic() + LONGEST_S
        while not is_time():
            assert self.process.is_alive(), "".join(self.told())[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """Kill it, while it runs."""
        self.process.kill()
        self.ended(-signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()  # one that is stopped would keep the tests from ending
        self.process.join()


def run(folder: Path, program: str | Path, *arguments: str | Path, code: int = 0) -> Told:
    """Run a program to its end, which has this exit code, and return what it wrote."""
    with Program(folder, program, *arguments) as started:
        return started.ended(code)


def _run(folder: Path, files: list[str], program: str, *arguments: str) -> None:
    for name, stream in zip(files, (1, 2), strict=True):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND), stream)
    os.chdir(folder)
    sys.argv = [program, *arguments]
    if program.endswith(".py"):
        sys.path.insert(0, str(Path(program).parent))
        runpy.run_path(program, run_name="__main__")
    else:
        sys.path.insert(0, str(folder))
        runpy.run_module(program, run_name="__main__", alter_sys=True)

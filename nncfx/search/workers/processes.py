"""Workers that are processes of this machine."""

import contextlib
import multiprocessing
import pathlib
import signal
import tempfile
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, final

from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.processors import usable_processors
from nncfx.search.workers.pool import Pool, Worker, signalled
from nncfx.search.workers.worker import Workplace, begin, end_with_parent, evaluated


@final
class LocalExecutor(Pool):
    """Evaluates on processes of this machine, started fresh (spawned) and kept until `close`.

    Each worker is a `concurrent.futures` pool of one process, so a worker that dies does not
    affect others. The evaluation is passed through a file, once. As always with spawned processes,
    a program that uses it must protect its main part by `if __name__ == "__main__":`.

    Args:
        workers: number of workers, at least 1.
        threads: torch threads of each; None: the processors of this process, divided among them.

    Raises:
        ArgumentError: `workers` or `threads` is below 1.
    """

    _died = BrokenProcessPool

    def __init__(self, workers: int, *, threads: int | None = None) -> None:
        super().__init__(workers)
        share = max(usable_processors() // workers, 1)
        self._threads = share if threads is None else threads
        if self._threads < 1:
            raise ArgumentError(f"threads is {threads}; a worker needs at least 1.")
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @override
    def close(self) -> None:
        super().close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    @override
    def _share(self, content: bytes) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="nncfx-")
        self._file.write_bytes(content)

    @property
    def _file(self) -> pathlib.Path:
        if self._folder is None:  # created by `open`
            raise AssertionError
        return pathlib.Path(self._folder.name, "evaluation")

    @override
    def _started(self) -> Worker:
        return _Process(self._file, self._threads)


@final
class _Process(Worker):
    """A pool of one process."""

    def __init__(self, file: pathlib.Path, threads: int) -> None:
        self._pool = ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context("spawn"), initializer=end_with_parent
        )
        self._place = self._pool.submit(begin, file, threads)

    @property
    @override
    def place(self) -> Workplace:
        try:
            return self._place.result()
        except BrokenProcessPool as error:
            raise ArgumentError(
                "A worker ended before it began. A program that starts workers keeps its main "
                "part under 'if __name__ == \"__main__\":', since each worker imports it again; "
                "any other cause is on standard error."
            ) from error
        except (ImportError, AttributeError) as error:
            raise ArgumentError(
                f"A worker cannot read what it is to evaluate ({error}). Functions and classes "
                "must be importable there by their names: put them into a module."
            ) from error

    @override
    def submit(self, argument: object, what: str) -> Future[Any]:
        return self._pool.submit(evaluated, argument, what)

    @override
    def kill(self) -> None:
        process = None
        with contextlib.suppress(Exception):  # a pool that never started has no process
            process = self._place.result().process
        if process is not None:
            signalled(process, signal.SIGKILL)
        self._pool.shutdown(wait=True, cancel_futures=True)

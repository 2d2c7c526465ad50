"""Workers that are processes of this machine."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import pathlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Self, final

from nncfx.errors import ArgumentError
from nncfx.processors import usable_processors
from nncfx.search.workers.executor import Done, check_workers, pickled
from nncfx.search.workers.worker import Workplace, begin, end_with_parent, evaluated

__all__ = ["LocalExecutor"]


@final
class LocalExecutor:
    """Evaluates on processes of this machine, started anew (spawned) and kept until `close`.

    Each worker is a pool of one process of `concurrent.futures`, so that one that dies takes no
    other with it. What they evaluate is passed through a file, once. A program that uses it keeps
    its main part under `if __name__ == "__main__":`, as with every process that is spawned.

    Args:
        workers: how many, at least 1.
        threads: of torch in each; None: the processors of this process, divided among them.

    Raises:
        ArgumentError: `workers` or `threads` is below 1.
    """

    def __init__(self, workers: int, *, threads: int | None = None) -> None:
        self._workers = check_workers(workers)
        share = max(usable_processors() // workers, 1)
        self._threads = share if threads is None else threads
        if self._threads < 1:
            raise ArgumentError(f"threads is {threads}; a worker needs at least 1.")
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._idle: list[_Worker] = []
        self._busy: dict[Future[Any], tuple[int, _Worker, float]] = {}

    @property
    def workers(self) -> int:
        """How many points are evaluated at the same time."""
        return self._workers

    def open(self, evaluate: Callable[[Any], Any]) -> None:
        """Start the processes, all at once.

        Raises:
            ArgumentError: `evaluate` cannot be passed to another process.
        """
        self.close()
        content = pickled(evaluate)
        self._folder = tempfile.TemporaryDirectory(prefix="nncfx-")
        self._file.write_bytes(content)
        self._idle = [self._started() for _ in range(self._workers)]
        try:
            for worker in self._idle:
                _ = worker.place
        except BaseException:
            self.close()
            raise

    def submit(self, key: int, argument: object, what: str) -> None:
        """Let a free process evaluate `argument`."""
        worker = self._idle.pop()
        try:
            future = worker.pool.submit(evaluated, argument, what)
        except BrokenProcessPool:  # it died while it had nothing to do
            worker = self._replaced(worker)
            future = worker.pool.submit(evaluated, argument, what)
        self._busy[future] = (key, worker, time.monotonic())

    def wait(self, grace: float = 0.0) -> list[Done]:
        """Return at least one task that has ended.

        Raises:
            MachineError: memory, disk or device of a worker failed.
            ArgumentError: what was evaluated, or came of it, cannot be pickled.
        """
        ended, others = concurrent.futures.wait(
            self._busy, return_when=concurrent.futures.FIRST_COMPLETED
        )
        if others and grace:
            took = time.monotonic() - min(self._busy[one][2] for one in ended)
            ended |= concurrent.futures.wait(others, timeout=grace * took).done
        return [self._done(one) for one in sorted(ended, key=lambda one: self._busy[one][0])]

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Stop the processes (SIGSTOP) in the body."""
        stopped = [worker.place.process for _, worker, _ in self._busy.values()]
        try:
            for process in stopped:
                _signalled(process, signal.SIGSTOP)
            yield
        finally:
            for process in stopped:
                _signalled(process, signal.SIGCONT)

    def close(self) -> None:
        """Kill the processes."""
        for worker in (*self._idle, *(worker for _, worker, _ in self._busy.values())):
            worker.kill()
        self._idle, self._busy = [], {}
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _file(self) -> pathlib.Path:
        if self._folder is None:  # `open` makes it
            raise AssertionError
        return pathlib.Path(self._folder.name, "evaluation")

    def _started(self) -> "_Worker":
        return _Worker(self._file, self._threads)

    def _replaced(self, dead: "_Worker") -> "_Worker":
        dead.kill()
        return self._started()

    def _done(self, future: Future[Any]) -> Done:
        key, worker, _ = self._busy.pop(future)
        try:
            done = Done(key=key, attempt=future.result())
        except BrokenProcessPool:
            self._idle.append(self._replaced(worker))
            return Done(key=key, attempt=None)
        except BaseException:
            self._idle.append(worker)
            raise
        self._idle.append(worker)
        return done


@final
class _Worker:
    """A pool of one process."""

    def __init__(self, file: pathlib.Path, threads: int) -> None:
        self.pool = ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context("spawn"), initializer=end_with_parent
        )
        self._place = self.pool.submit(begin, file, threads)

    @property
    def place(self) -> Workplace:
        """Where it runs; waits until it does.

        Raises:
            ArgumentError: it could not begin.
        """
        try:
            return self._place.result()
        except BrokenProcessPool as error:
            raise ArgumentError(
                "A worker ended before it began. A program that starts workers keeps its main "
                "part under 'if __name__ == \"__main__\":', since each worker imports it anew; "
                "what else went wrong stands on standard error."
            ) from error
        except (ImportError, AttributeError) as error:
            raise ArgumentError(
                f"A worker cannot read what it is to evaluate ({error}). Functions and classes "
                "must be importable there by their names: put them into a module."
            ) from error

    def kill(self) -> None:
        """End the process, whatever it does."""
        process = None
        with contextlib.suppress(Exception):  # one that never began has none
            process = self._place.result().process
        if process is not None:
            _signalled(process, signal.SIGKILL)
        self.pool.shutdown(wait=True, cancel_futures=True)


def _signalled(process: int, which: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, which)

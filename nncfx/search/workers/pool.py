"""Base class of executors on this machine and on a cluster; tracks which workers are idle."""

import abc
import concurrent.futures
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Protocol

from typing_extensions import override

from nncfx.closing import Closing
from nncfx.search.workers.executor import Done, Executor, check_workers, pickled
from nncfx.search.workers.worker import Workplace


class Worker(Protocol):
    """One process that evaluates."""

    @property
    def place(self) -> Workplace:
        """Where it runs; blocks until it is running."""
        ...

    def submit(self, argument: object, what: str) -> Future[Any]:
        """Make it evaluate `argument`."""
        ...

    def kill(self) -> None:
        """End it, even while it is working."""
        ...


class Pool(Executor, Closing):
    """Workers that are started fresh and kept until `close`."""

    _died: type[Exception]
    """The exception of a task's future if its worker has died."""

    def __init__(self, workers: int) -> None:
        self._workers = check_workers(workers)
        self._idle: list[Worker] = []
        self._busy: dict[Future[Any], tuple[int, Worker, float]] = {}

    @abc.abstractmethod
    def _share(self, content: bytes) -> None:
        """Make the evaluation available to workers."""

    @abc.abstractmethod
    def _started(self) -> Worker:
        """Return a new worker, which may still be starting."""

    @property
    @override
    def workers(self) -> int:
        return self._workers

    @override
    def open(self, evaluate: Callable[[Any], Any]) -> None:
        self.close()
        self._share(pickled(evaluate))
        self._idle = [self._started() for _ in range(self._workers)]
        try:
            for worker in self._idle:
                _ = worker.place
        except BaseException:
            self.close()
            raise

    @override
    def submit(self, key: int, argument: object, what: str) -> None:
        worker = self._idle.pop()
        try:
            future = worker.submit(argument, what)
        except self._died:  # while it was idle
            worker = self._replaced(worker)
            future = worker.submit(argument, what)
        self._busy[future] = (key, worker, time.monotonic())

    @override
    def wait(self, grace: float = 0.0) -> list[Done]:
        first = concurrent.futures.FIRST_COMPLETED
        ended, others = concurrent.futures.wait(self._busy, return_when=first)
        if others and grace:
            took = time.monotonic() - min(self._busy[one][2] for one in ended)
            ended |= concurrent.futures.wait(others, timeout=grace * took).done
        return [self._done(one) for one in sorted(ended, key=lambda one: self._busy[one][0])]

    @contextlib.contextmanager
    @override
    def quiet(self) -> Iterator[None]:
        places = [worker.place for _, worker, _ in self._busy.values()]
        here = [place.process for place in places if place.host == socket.gethostname()]
        try:
            for process in here:
                signalled(process, signal.SIGSTOP)
            yield
        finally:
            for process in here:
                signalled(process, signal.SIGCONT)

    @override
    def close(self) -> None:
        for worker in (*self._idle, *(worker for _, worker, _ in self._busy.values())):
            worker.kill()
        self._idle, self._busy = [], {}

    def _replaced(self, dead: Worker) -> Worker:
        dead.kill()
        return self._started()

    def _done(self, future: Future[Any]) -> Done:
        key, worker, _ = self._busy.pop(future)
        try:
            done = Done(key=key, attempt=future.result())
        except self._died:
            self._idle.append(self._replaced(worker))
            return Done(key=key, attempt=None)
        except BaseException:
            self._idle.append(worker)
            raise
        self._idle.append(worker)
        return done


def signalled(process: int, which: signal.Signals) -> None:
    """Send a signal to a process, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, which)

"""Workers that are actors of Ray, on this machine or on a cluster."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Self, final

from nncfx.errors import MachineError, needing
from nncfx.search.workers.executor import Done, check_workers, pickled
from nncfx.search.workers.worker import Workplace, begin, evaluated

__all__ = ["RayExecutor"]

_STARTING_S: Final = 300.0


@final
class RayExecutor:
    """Evaluates on actors of Ray, where each is given the resources that a trial needs.

    `ray.init(...)` says on which cluster; without it, one is started on this machine. What is
    evaluated is put into Ray's object store once. `quiet` stops the actors on the machine of the
    driver, where times are measured; those on other machines go on.

    Args:
        workers: how many, at least 1.
        cpus: processors of one trial.
        gpus: accelerators of one trial; a part of one is allowed.
        resources: other resources of one trial, by their names in the cluster.
        threads: of torch in each; None: as many as `cpus`, at least 1.

    Raises:
        ArgumentError: `workers` is below 1.
        MissingExtraError: Ray is not installed.
    """

    def __init__(
        self,
        workers: int,
        *,
        cpus: float = 1,
        gpus: float = 0,
        resources: Mapping[str, float] | None = None,
        threads: int | None = None,
    ) -> None:
        self._workers = check_workers(workers)
        self._threads = max(int(cpus), 1) if threads is None else threads
        self._needs = {"num_cpus": cpus, "num_gpus": gpus, "resources": dict(resources or {})}
        self._ray = _ray()
        self._content: Any = None
        self._idle: list[_Actor] = []
        self._busy: dict[Any, tuple[int, _Actor, float]] = {}

    @property
    def workers(self) -> int:
        """How many points are evaluated at the same time."""
        return self._workers

    def open(self, evaluate: Callable[[Any], Any]) -> None:
        """Start the actors.

        Raises:
            ArgumentError: `evaluate` cannot be passed to another process.
            MachineError: the cluster does not give as many actors within five minutes.
        """
        self.close()
        if not self._ray.is_initialized():
            self._ray.init(log_to_driver=False)
        self._content = self._ray.put(pickled(evaluate))
        self._idle = [self._started() for _ in range(self._workers)]
        try:
            for actor in self._idle:
                actor.begun()
        except BaseException:
            self.close()
            raise

    def submit(self, key: int, argument: object, what: str) -> None:
        """Let a free actor evaluate `argument`."""
        actor = self._idle.pop()
        self._busy[actor.handle.evaluated.remote(argument, what)] = (key, actor, time.monotonic())

    def wait(self, grace: float = 0.0) -> list[Done]:
        """Return at least one task that has ended.

        Raises:
            MachineError: memory, disk or device of a worker failed.
        """
        ended, others = self._ray.wait([*self._busy], num_returns=1)
        if others and grace:
            took = time.monotonic() - self._busy[ended[0]][2]
            ended += self._ray.wait(others, num_returns=len(others), timeout=grace * took)[0]
        return [self._done(one) for one in sorted(ended, key=lambda one: self._busy[one][0])]

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Stop the actors on this machine (SIGSTOP) in the body."""
        places = [actor.begun() for _, actor, _ in self._busy.values()]
        here = [place.process for place in places if place.host == socket.gethostname()]
        try:
            for process in here:
                os.kill(process, signal.SIGSTOP)
            yield
        finally:
            for process in here:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    def close(self) -> None:
        """End the actors; the cluster stays."""
        for actor in (*self._idle, *(actor for _, actor, _ in self._busy.values())):
            self._ray.kill(actor.handle)
        self._idle, self._busy, self._content = [], {}, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> "_Actor":
        made = self._ray.remote(_Trials).options(max_restarts=0, **self._needs)
        return _Actor(self._ray, made.remote(self._content, self._threads))

    def _done(self, reference: Any) -> Done:  # noqa: ANN401 (a class of Ray's)
        key, actor, _ = self._busy.pop(reference)
        try:
            done = Done(key=key, attempt=self._ray.get(reference))
        except self._ray.exceptions.RayActorError:
            self._idle.append(self._started())
            return Done(key=key, attempt=None)
        except self._ray.exceptions.RayTaskError as error:
            self._idle.append(actor)
            raise error.cause from error
        self._idle.append(actor)
        return done


class _Trials:
    """What an actor is."""

    def __init__(self, content: bytes, threads: int) -> None:
        self._place = begin(content, threads)

    def place(self) -> Workplace:
        return self._place

    def evaluated(self, argument: object, what: str) -> Any:  # noqa: ANN401 (an attempt)
        return evaluated(argument, what)


@final
class _Actor:
    """A handle, and where it runs."""

    def __init__(self, ray: Any, handle: Any) -> None:  # noqa: ANN401 (without types)
        self._ray, self.handle = ray, handle
        self._place = handle.place.remote()

    def begun(self) -> Workplace:
        """Return where it runs; waits until it does."""
        try:
            found: Workplace = self._ray.get(self._place, timeout=_STARTING_S)
        except self._ray.exceptions.GetTimeoutError as error:
            raise MachineError(
                f"Ray has started no worker within {_STARTING_S:g} s: the cluster lacks the "
                "processors, accelerators or other resources that a trial asks for. Ask for "
                "less, or use fewer workers."
            ) from error
        return found


def _ray() -> Any:  # noqa: ANN401 (without types)
    with needing("ray", "ray", "RayExecutor"):
        import ray
        import ray.exceptions
    return ray

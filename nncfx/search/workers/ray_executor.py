"""Workers that are actors of Ray, on this machine or on a cluster."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, final

from typing_extensions import override

from nncfx.errors import MachineError, needing
from nncfx.search.workers.executor import Done
from nncfx.search.workers.pool import Pool, Worker
from nncfx.search.workers.worker import Workplace, begin, evaluated

_STARTING_S: Final = 300.0


@final
class RayExecutor(Pool):
    """Evaluates on actors of Ray, each with the resources that a trial needs.

    `ray.init(...)` selects the cluster; without it, one is started on this machine. The evaluation
    is put into Ray's object store once. `quiet` pauses the actors on the machine of the driver,
    where times are measured; those on other machines continue.

    Args:
        workers: number of workers, at least 1.
        cpus: processors per trial.
        gpus: accelerators per trial; fractions are allowed.
        resources: other resources per trial, by their names in the cluster.
        threads: torch threads of each; None: as many as `cpus`, at least 1.

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
        super().__init__(workers)
        self._threads = max(int(cpus), 1) if threads is None else threads
        self._needs = {"num_cpus": cpus, "num_gpus": gpus, "resources": dict(resources or {})}
        self._ray = _ray()
        self._died = self._ray.exceptions.RayActorError
        self._content: Any = None

    @override
    def open(self, evaluate: Callable[[Any], Any]) -> None:
        """Start the actors.

        Raises:
            ArgumentError: `evaluate` cannot be passed to another process.
            MachineError: the cluster does not provide enough actors within five minutes.
        """
        if not self._ray.is_initialized():
            self._ray.init(log_to_driver=False)
        super().open(evaluate)

    @override
    def close(self) -> None:
        """End the actors; the cluster keeps running."""
        super().close()
        self._content = None

    @override
    def _share(self, content: bytes) -> None:
        self._content = self._ray.put(content)

    @override
    def _started(self) -> Worker:
        made = self._ray.remote(_Trials).options(max_restarts=0, **self._needs)
        return _Actor(self._ray, made.remote(self._content, self._threads))

    @override
    def _done(self, future: Future[Any]) -> Done:
        try:
            return super()._done(future)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error


class _Trials:
    """The class of the actors."""

    def __init__(self, content: bytes, threads: int) -> None:
        self._place = begin(content, threads)

    def place(self) -> Workplace:
        return self._place

    def evaluated(self, argument: object, what: str) -> Any:  # noqa: ANN401 (an attempt)
        return evaluated(argument, what)


@final
class _Actor(Worker):
    def __init__(self, ray: Any, handle: Any) -> None:  # noqa: ANN401 (without types)
        self._ray, self._handle = ray, handle
        self._place = handle.place.remote()

    @property
    @override
    def place(self) -> Workplace:
        try:
            found: Workplace = self._ray.get(self._place, timeout=_STARTING_S)
        except self._ray.exceptions.GetTimeoutError as error:
            raise MachineError(
                f"Ray has started no worker within {_STARTING_S:g} s: the cluster lacks the "
                "processors, accelerators or other resources that a trial asks for. Ask for "
                "less, or use fewer workers."
            ) from error
        return found

    @override
    def submit(self, argument: object, what: str) -> Future[Any]:
        future: Future[Any] = self._handle.evaluated.remote(argument, what).future()
        return future

    @override
    def kill(self) -> None:
        self._ray.kill(self._handle)


def _ray() -> Any:  # noqa: ANN401 (without types)
    with needing("ray", "ray", "RayExecutor"):
        import ray
        import ray.exceptions
    return ray

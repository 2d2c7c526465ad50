"""The protocol for running trials in parallel, independent of the engine."""

import dataclasses
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from nncfx.errors import ArgumentError
from nncfx.search.attempt import Attempt

P = TypeVar("P")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """A task that is no longer running.

    Attributes:
        key: of the task.
        attempt: its result; None if its worker died before it ended.
    """

    key: int
    attempt: Attempt[Any] | None


@runtime_checkable
class Executor(Protocol):
    """Evaluates points on workers; implemented by `LocalExecutor` and `RayExecutor`.

    A search calls `open` once, then `submit` and `wait` alternately, and finally `close`; only one
    search uses an executor at a time. A worker that dies is replaced, and its task is returned as
    lost.
    """

    @property
    def workers(self) -> int:
        """How many points are evaluated at the same time, at least 1."""
        ...

    def open(self, evaluate: Callable[[Any], Any]) -> None:
        """Start the workers; `evaluate` is passed to each once, and kept there.

        Raises:
            ArgumentError: `evaluate` cannot be passed to another process.
        """
        ...

    def submit(self, key: int, argument: object, what: str) -> None:
        """Make a free worker evaluate `argument`; `what` names the task in messages."""
        ...

    def wait(self, grace: float = 0.0) -> list[Done]:
        """Return at least one task that has ended.

        Args:
            grace: how much longer to wait for the others, relative to the duration of the first.

        Raises:
            MachineError: memory, disk or a device of a worker failed.
            ArgumentError: the argument or the result cannot be pickled.
        """
        ...

    def quiet(self) -> AbstractContextManager[None]:
        """Pause the workers of this machine in the body, so that time can be measured."""
        ...

    def close(self) -> None:
        """End the workers and their running tasks; closing twice is allowed."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitEvaluation(Generic[P, R]):
    """An evaluation of which a part runs on a worker.

    Calling it runs all parts here, one after the other.

    Attributes:
        prepare: computes the argument for a worker from a point and the number of trials that had
            ended when it was given (None: all that have); both can be pickled.
        work: runs on a worker with that argument; passed to it once, with all that it holds.
        finish: computes the outcome from a point and the result of `work`, here, for work that
            must not run in parallel, such as measuring a latency.
    """

    prepare: Callable[[P, int | None], Any]
    work: Callable[[Any], Any]
    finish: Callable[[P, Any], R]

    def __call__(self, point: P) -> R:
        """Return the outcome of `point`."""
        return self.finish(point, self.work(self.prepare(point, None)))


def split(evaluate: Callable[[P], R]) -> SplitEvaluation[P, R]:
    """Return `evaluate` as a split evaluation, which runs on a worker if it is not split."""
    if isinstance(evaluate, SplitEvaluation):
        return evaluate
    return SplitEvaluation(
        prepare=lambda point, _: point, work=evaluate, finish=lambda _, outcome: outcome
    )


def check_workers(workers: object) -> int:
    """Return the number of workers.

    Raises:
        ArgumentError: it is not an integer of at least 1.
    """
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ArgumentError(
            f"workers is {workers!r}; it is how many trials run at the same time, a whole number "
            "of at least 1. Write 2 for two processes."
        )
    return workers


def pickled(evaluate: Callable[[Any], Any]) -> bytes:
    """Return `evaluate` as bytes for another process.

    With cloudpickle, if installed, lambdas and functions of a notebook or the main program are
    pickled by value; without it every function must be importable by its name.

    Raises:
        ArgumentError: a part of it cannot be pickled.
    """
    try:
        import cloudpickle
    except ImportError:
        cloudpickle = pickle
    try:
        content: bytes = cloudpickle.dumps(evaluate)
    except Exception as error:
        raise ArgumentError(
            f"The evaluation cannot be passed to another process ({error}). Define functions and "
            "classes at the top of a module, keep open files and locks out of models, data sets "
            "and metrics, or run without workers; cloudpickle (pip install cloudpickle) passes "
            "lambdas and functions of notebooks too."
        ) from error
    return content

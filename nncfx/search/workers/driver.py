"""Drives a search with parallel trials: distributes points, and records the results."""

import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from nncfx.errors import MachineError
from nncfx.search.attempt import Attempt, attempt
from nncfx.search.journaled import Journaled, Lease, Numbered
from nncfx.search.trials import JSONValue
from nncfx.search.workers.executor import Executor, SplitEvaluation, split

_LOGGER: Final = logging.getLogger(__name__)
_DEATHS: Final = 3
Point = Mapping[str, JSONValue]
T = TypeVar("T", bound=Numbered)


@contextlib.contextmanager
def driving(executor: Executor | None, evaluate: Callable[[Any], Any]) -> Iterator[None]:
    """Keep the workers of `executor`, if any, open in the body.

    Raises:
        ArgumentError: `evaluate` cannot be passed to another process.
    """
    if executor is None:
        yield
        return
    executor.open(split(evaluate).work)
    try:
        yield
    finally:
        executor.close()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Driver(Generic[T]):
    """Runs trials of a study on workers.

    Attributes:
        study: keeps leases and trials.
        executor: evaluates; must be open.
        evaluation: the evaluation of a point.
        argument_of: returns the argument of `evaluation` for a point.
        record: records the result of a lease.
        grace: how much longer to wait for other trials, relative to the duration of the first: a
            search that needs each result for the next point waits for trials that end together.
        deaths: how often the worker of one trial can die before the search gives up.
    """

    study: Journaled[T]
    executor: Executor
    evaluation: SplitEvaluation[Any, Any]
    argument_of: Callable[[Point], Any]
    record: Callable[[Lease, Attempt[Any]], T]
    grace: float = 0.0
    deaths: int = _DEATHS

    def run(self, propose: Callable[[Sequence[Point], int], Sequence[Point]]) -> None:
        """Run trials until none is running and `propose` has no more.

        Existing leases of the study, from a run that was killed, are run again first.

        Args:
            propose: returns points, at most the second argument, while the first are running.

        Raises:
            MachineError: memory, disk or a device failed, or the worker of one trial died
                repeatedly; running trials are run again when the search continues.
        """
        waiting = list(self.study.leases)
        under_way: dict[int, Lease] = {}
        deaths: dict[int, int] = {}
        number = 0
        while True:
            while waiting and len(under_way) < self.executor.workers:
                under_way[number] = waiting.pop(0)
                self._submit(number, under_way[number])
                number += 1
            free = self.executor.workers - len(under_way)
            points = [lease.point for lease in under_way.values()]
            found = propose(points, free) if free else ()
            if found:
                waiting = [self.study.lease(point) for point in found]
                continue
            if not under_way:
                return
            for done in self.executor.wait(self.grace):
                lease = under_way[done.key]
                if done.attempt is None:
                    deaths[done.key] = self._died(lease, deaths.get(done.key, 0) + 1)
                    self._submit(done.key, lease)
                else:
                    del under_way[done.key]
                    self.record(lease, self._finished(lease, done.attempt))

    def _submit(self, key: int, lease: Lease) -> None:
        argument = self.evaluation.prepare(self.argument_of(lease.point), lease.after)
        self.executor.submit(key, argument, _words(lease.point))

    def _finished(self, lease: Lease, done: Attempt[Any]) -> Attempt[Any]:
        """Run the part of a trial that runs here; its seconds count."""
        if done.error is not None:
            return done
        point = self.argument_of(lease.point)
        rest = attempt(lambda: self.evaluation.finish(point, done.value), _words(lease.point))
        return dataclasses.replace(
            rest, seconds=round(done.seconds + rest.seconds, 3), started=done.started
        )

    def _died(self, lease: Lease, times: int) -> int:
        _LOGGER.warning("The worker of %s died; the trial is given again.", _words(lease.point))
        if times >= self.deaths:
            raise MachineError(
                f"The worker of {_words(lease.point)} died {times} times, perhaps killed for "
                "lack of memory. Nothing is recorded of the trial. Use fewer workers, or "
                "smaller minibatches; then run the search again: its journal continues from "
                "here."
            )
        return times


def _words(point: Point) -> str:
    return f"the trial at {json.dumps(dict(point))}"

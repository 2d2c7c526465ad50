"""Wall time and CPU time of a call, and which of them to use."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

Clock: TypeAlias = Callable[[], float]
"""A monotonic clock in seconds."""

CLOCKS: Final = ("wall", "cpu", "auto")
"""The clocks for a measurement; see `TimingPlan.clock`."""

_HELD_UP: Final = 0.95


class Seconds(NamedTuple):
    """How long one call took; NaN for a clock that was not read."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Stopwatch:
    """Reads the wall clock around a call, and inside of that the clock of CPU time.

    Attributes:
        wall: the time that a user waits.
        cpu: the time that this process computes; None to skip it.
    """

    wall: Clock
    cpu: Clock | None

    def time(self, call: Callable[[], object]) -> Seconds:
        """Return how long `call` takes."""
        if self.cpu is None:
            start = self.wall()
            call()
            return Seconds(self.wall() - start, float("nan"))
        start, computed = self.wall(), self.cpu()
        call()
        spent = self.cpu() - computed
        return Seconds(self.wall() - start, spent)


def held_up_share(calls: Iterable[Seconds]) -> float:
    """Return the share of `calls` that were not computing for more than 5 % of their time.

    A call that computes in one thread was then delayed by other work; 0.0 without calls.

    >>> held_up_share([Seconds(2.0, 2.0), Seconds(3.0, 2.0)])
    0.5
    """
    times = np.array(list(calls)).reshape(-1, 2)
    return float(np.mean(times[:, 1] < _HELD_UP * times[:, 0])) if len(times) else 0.0

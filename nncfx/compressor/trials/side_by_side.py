"""The part of a trial that a worker leaves to the driver: measurements of time."""

from typing import Protocol, final

from torch import nn

from nncfx.objectives import Objective


class Timer(Protocol):
    """Times models, like `CandidateTimer`, and describes the timed call."""

    def told(self, objective: Objective) -> str:
        """Return the call that an objective of time refers to; "" for other objectives."""
        ...

    def throughput(self, model: nn.Module) -> float:
        """Return examples per second of `model`."""
        ...

    def latency_ms(self, model: nn.Module) -> float:
        """Return milliseconds of one call of `model`."""
        ...


class TimedElsewhere(BaseException):
    """Raised when an objective needs a time, which a worker in parallel cannot measure."""


@final
class NoTimer:
    """Replaces the timer on a worker, where other work would disturb measurements."""

    def told(self, objective: Objective) -> str:
        """Return "": a worker measures no time."""
        del objective
        return ""

    def throughput(self, model: nn.Module) -> float:
        """Leave it to the driver.

        Raises:
            TimedElsewhere: always.
        """
        del model
        raise TimedElsewhere

    latency_ms = throughput

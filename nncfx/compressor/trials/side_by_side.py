"""What a trial on a worker leaves to the process that drives the search: whatever takes time."""

from typing import Protocol, final

from torch import nn

from nncfx.objectives import Objective


class Timer(Protocol):
    """Times models; `CandidateTimer` does, and tells of what call."""

    def told(self, objective: Objective) -> str:
        """Return of what call an objective is that counts time; "" for another."""
        ...

    def throughput(self, model: nn.Module) -> float:
        """Return examples per second of `model`."""
        ...

    def latency_ms(self, model: nn.Module) -> float:
        """Return milliseconds of one call of `model`."""
        ...


class TimedElsewhere(BaseException):
    """An objective has asked for a time where none can be measured, beside other trials."""


@final
class NoTimer:
    """Stands for the timer on a worker, where other work would spoil what is measured."""

    def told(self, objective: Objective) -> str:
        """Return "": a worker tells nothing."""
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

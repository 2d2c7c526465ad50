"""One evaluation of a candidate: what came of it, or why it failed, and how long it took."""

import dataclasses
import datetime as dt
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from nncfx.errors import MachineError, error_text, machine_faults_told

__all__ = ["Attempt", "attempt"]

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt(Generic[T]):
    """The outcome of one evaluation.

    Attributes:
        value: what it returned; None when it raised.
        error: why it failed ("ErrorType: message"); None when it did not.
        seconds: its wall-clock duration.
        started: when it began, ISO 8601 in UTC.
    """

    value: T | None
    error: str | None
    seconds: float
    started: str


def attempt(evaluate: Callable[[], T], what: str) -> Attempt[T]:
    """Return the outcome of calling `evaluate`; KeyboardInterrupt and SystemExit pass.

    Raises:
        MachineError: memory, disk or device failed, which says nothing of the candidate; `what`
            names the trial.
    """
    started = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    clock = time.perf_counter()
    value: T | None = None
    error: str | None = None
    try:
        with machine_faults_told(what, "run the search again: its journal goes on from here"):
            value = evaluate()
    except MachineError:
        raise
    except Exception as reason:  # noqa: BLE001 (recorded and logged; the search goes on)
        error = error_text(reason)
    seconds = round(time.perf_counter() - clock, 3)
    return Attempt(value=value, error=error, seconds=seconds, started=started)

"""One evaluation of a candidate: what came of it, or why it failed, and how long it took."""

import dataclasses
import datetime as dt
import time
from collections.abc import Callable
from typing import Generic, TypeVar

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


def attempt(evaluate: Callable[[], T]) -> Attempt[T]:
    """Return the outcome of calling `evaluate`; KeyboardInterrupt and SystemExit pass."""
    started = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    clock = time.perf_counter()
    value: T | None = None
    error: str | None = None
    try:
        value = evaluate()
    except Exception as reason:  # noqa: BLE001 (recorded and logged; the search goes on)
        error = f"{type(reason).__name__}: {reason}"
    seconds = round(time.perf_counter() - clock, 3)
    return Attempt(value=value, error=error, seconds=seconds, started=started)

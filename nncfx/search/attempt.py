"""One evaluation of a candidate: what came of it, or why it failed, and how long it took."""

import dataclasses
import datetime as dt
import logging
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from nncfx.errors import MachineError, NNCFXError, error_text, machine_faults_told

_LOGGER: Final = logging.getLogger(__name__)
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

    Of an error that is none of ours, or comes from one, the log has the traceback.

    Raises:
        MachineError: memory, disk or device failed, which says nothing of the candidate; `what`
            names the trial.
    """
    started = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    clock = time.perf_counter()
    value: T | None = None
    error: str | None = None
    try:
        with machine_faults_told(what, "run the search again: its journal continues from here"):
            value = evaluate()
    except MachineError:
        raise
    except Exception as reason:  # recorded and logged; the search goes on
        error = error_text(reason)
        # what is raised on purpose says all; what users' code raised is found by its lines
        if not isinstance(reason, NNCFXError) or reason.__cause__ is not None:
            _LOGGER.warning("%s raised an error:", what, exc_info=True)
    seconds = round(time.perf_counter() - clock, 3)
    return Attempt(value=value, error=error, seconds=seconds, started=started)

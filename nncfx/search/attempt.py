"""One evaluation of a candidate: its result or the reason of its failure, and its duration."""

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
        value: the returned value; None if it raised.
        error: why it failed ("ErrorType: message"); None if it did not.
        seconds: its wall-clock duration.
        started: when it began, ISO 8601 in UTC.
    """

    value: T | None
    error: str | None
    seconds: float
    started: str


def attempt(evaluate: Callable[[], T], what: str) -> Attempt[T]:
    """Return the outcome of calling `evaluate`; KeyboardInterrupt and SystemExit propagate.

    Errors that are not nncfx errors, or are caused by other errors, are logged with a traceback.

    Raises:
        MachineError: memory, disk or a device failed, which is not the candidate's fault; `what`
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
    except Exception as reason:  # recorded and logged; the search continues
        error = error_text(reason)
        # our own errors are self-explanatory; errors in user code need the traceback
        if not isinstance(reason, NNCFXError) or reason.__cause__ is not None:
            _LOGGER.warning("%s raised an error:", what, exc_info=True)
    seconds = round(time.perf_counter() - clock, 3)
    return Attempt(value=value, error=error, seconds=seconds, started=started)

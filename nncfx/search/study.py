"""The persisted trials of a search over one level."""

import logging
import os
from collections.abc import Callable, Mapping
from typing import Self

from nncfx.errors import ArgumentError, SearchError
from nncfx.search.attempt import attempt
from nncfx.search.journal import JOURNAL_VERSION, Journal
from nncfx.search.trials import JSONValue, Measurement, Stage, Trial

__all__ = ["JOURNAL_VERSION", "Study"]

_LOGGER = logging.getLogger(__name__)


class Study:
    """The trials of one search, kept in a journal that survives the process.

    The journal is a text file of JSON lines. The first line is the header: format, version, and
    what must not change between runs (settings, seed, a fingerprint of model and data). Each
    further line is one trial, appended and fsync'ed as the trial ends. Opening an existing
    journal with the same header goes on where it stopped; finished trials are not run again.
    A torn last line, left by a process killed while writing, is dropped (see `notes`).

    A study holds a lock on its journal until `close` (it is a context manager).

    Attributes:
        trials: the finished trials, in order of their numbers.
        notes: what was mended while opening, one sentence each.

    Args:
        path: the journal; its folder is created. None keeps the study in memory only.
        header: what identifies the search, JSON values; compared key by key on resuming.

    Raises:
        SearchError: the journal belongs to another search, is damaged before its last line,
            was written by a newer nncfx, or is in use by another process.
        ArgumentError: the header holds something that is not a JSON value.

    >>> study = Study(None, {"seed": 0})
    >>> trial = study.run("accuracy", 0.5, lambda level: Measurement(metric=0.9, objective=level))
    >>> (trial.number, trial.state, trial.measurement.metric)
    (0, 'done', 0.9)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        header: Mapping[str, JSONValue] | None = None,
    ) -> None:
        self._journal = Journal(path, header)
        self.notes = self._journal.notes
        try:
            self.trials = [
                _parse_trial(record, number, self._journal.place(number))
                for number, record in enumerate(self._journal.records)
            ]
        except BaseException:
            self.close()
            raise

    def bind(self, settings: Mapping[str, JSONValue]) -> None:
        """Make the search's own settings part of the header, or check them against it.

        Raises:
            SearchError: the journal was written with other settings.
        """
        self._journal.bind(settings)

    def run(self, stage: Stage, level: float, evaluate: Callable[[float], Measurement]) -> Trial:
        """Evaluate `level`, append the trial to the journal, and return it.

        A trial fails when `evaluate` raises an Exception or returns a metric or an objective
        that is not finite; the failure is recorded and logged, not raised. KeyboardInterrupt and
        SystemExit pass, and leave no trial.

        Raises:
            ArgumentError: `evaluate` returned something that cannot be recorded.
        """
        outcome = attempt(lambda: evaluate(level))
        measurement, error = outcome.value, outcome.error
        if error is None and not isinstance(measurement, Measurement):
            raise ArgumentError(
                f"The evaluation of level {level:g} returned {measurement!r}, and a search needs "
                "metric and objective. Return nncfx.search.Measurement(metric=..., objective=...)."
            )
        if measurement is not None and not measurement.is_finite:
            error = (
                f"The evaluation returned metric {measurement.metric} and objective "
                f"{measurement.objective}; both must be finite numbers."
            )
        trial = Trial(
            number=len(self.trials),
            stage=stage,
            level=level,
            state="done" if error is None else "failed",
            measurement=measurement if error is None else None,
            error=error,
            seconds=outcome.seconds,
            started=outcome.started,
        )
        if error is not None:
            _LOGGER.warning("Trial %d at level %g failed: %s", trial.number, level, error)
        self._journal.append(
            trial.to_json(), f"what the evaluation of level {trial.level} returned"
        )
        self.trials.append(trial)
        return trial

    def close(self) -> None:
        """Release the journal; closing twice is allowed."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _parse_trial(record: Mapping[str, JSONValue], number: int, place: str) -> Trial:
    try:
        trial = Trial.from_json(dict(record))
    except ArgumentError as error:
        raise SearchError(f"{place}: {error}") from error
    if trial.number != number:
        raise SearchError(
            f"{place} is trial {trial.number} where trial {number} must stand, so a line was lost "
            "or doubled. Restore the journal from a copy, or delete it to start again."
        )
    return trial

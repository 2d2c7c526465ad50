"""Base class of studies: trials in a journal, read back on opening."""

import dataclasses
import datetime as dt
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from typing_extensions import override

from nncfx.closing import Closing
from nncfx.errors import ArgumentError, SearchError
from nncfx.search.journal import Journal
from nncfx.search.trials import JSONValue

_LEASE = "lease"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lease:
    """A trial that was given to a worker, and has not ended.

    Attributes:
        point: what is evaluated, in the format of the study.
        after: how many trials had ended when it was given to the worker.
    """

    point: Mapping[str, JSONValue]
    after: int


class Numbered(Protocol):
    """A trial, as a journal sees it."""

    @property
    def number(self) -> int:
        """Position in the study, from 0."""
        ...

    @property
    def after(self) -> int | None:
        """How many trials had ended when it started; None: all earlier ones."""
        ...

    def to_json(self) -> dict[str, JSONValue]:
        """Return the JSON object for a journal line."""
        ...


T = TypeVar("T", bound=Numbered)


def known_to(trial: T, trials: Sequence[T]) -> Sequence[T]:
    """Return those of `trials`, of one study, that had ended when `trial` started."""
    return trials[: trial.number if trial.after is None else trial.after]


class Journaled(Closing, Generic[T]):
    """Trials in a `Journal`; a context manager that releases it.

    A trial that runs in parallel with others is announced by a lease first, so that it is started
    again if the driver or worker of the search was killed. Leases do not expire: the lock on the
    journal ensures that it has one driver at a time, so no clock is needed.

    Attributes:
        trials: the finished trials, in order of their numbers.
        leases: the running trials, including those of an earlier driver.
        notes: repairs made while opening, one sentence each.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        header: Mapping[str, JSONValue] | None = None,
        data: Mapping[str, JSONValue] | None = None,
    ) -> None:
        self._journal = Journal(path, header, data)
        self.notes = self._journal.notes
        self.trials: list[T] = []
        self.leases: list[Lease] = []
        try:
            for line, record in enumerate(self._journal.records):
                self._take(record, self._journal.place(line))
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _parsed(self, record: Mapping[str, JSONValue]) -> T:
        """Return the trial that `to_json` wrote.

        Raises:
            ArgumentError: a key is missing or unknown, or a value has the wrong type or range.
        """

    def bind(self, settings: Mapping[str, JSONValue]) -> None:
        """Add the search's own settings to the header, or check them against it.

        Raises:
            SearchError: the journal was written with other settings.
        """
        self._journal.bind(settings)

    @override
    def close(self) -> None:
        """Release the journal; closing twice is allowed."""
        self._journal.close()

    def lease(self, point: Mapping[str, JSONValue]) -> Lease:
        """Record that the evaluation of `point` is about to start; return its lease.

        Raises:
            SearchError: the journal is closed, or cannot be written.
        """
        lease = Lease(point=point, after=len(self.trials))
        started = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        record: dict[str, JSONValue] = {
            _LEASE: dict(point),
            "after": lease.after,
            "started": started,
        }
        self._journal.append(record, f"the lease of {dict(point)}")
        self.leases.append(lease)
        return lease

    @abstractmethod
    def _point(self, trial: T) -> Mapping[str, JSONValue]:
        """Return the point of `trial`, in the format of its lease."""

    def _keep(self, trial: T, what: str) -> T:
        """Append `trial`; `what` names it in messages."""
        self._journal.append(trial.to_json(), what)
        self._end(trial)
        return trial

    def _end(self, trial: T) -> None:
        self.trials.append(trial)
        point = self._point(trial)
        self.leases = [lease for lease in self.leases if lease.point != point]

    def _take(self, record: Mapping[str, JSONValue], place: str) -> None:
        point, after = record.get(_LEASE), record.get("after")
        if isinstance(point, dict) and isinstance(after, int):
            self.leases.append(Lease(point=point, after=after))
        else:
            self._end(self._read(record, place))

    def _read(self, record: Mapping[str, JSONValue], place: str) -> T:
        number = len(self.trials)
        try:
            trial = self._parsed(record)
        except ArgumentError as error:
            raise SearchError(f"{place}: {error}") from error
        if trial.number != number:
            raise SearchError(
                f"{place} is trial {trial.number} where trial {number} must be, so a line was "
                "lost or duplicated. Restore the journal from a copy, or delete it to start "
                "again."
            )
        return trial

"""What studies share: trials that a journal keeps, read back on opening."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, Protocol, Self, TypeVar

from nncfx.errors import ArgumentError, SearchError
from nncfx.search.journal import Journal
from nncfx.search.trials import JSONValue

__all__ = ["Journaled", "Numbered"]


class Numbered(Protocol):
    """A trial, as far as a journal is concerned."""

    @property
    def number(self) -> int:
        """Position in the study, from 0."""
        ...

    def to_json(self) -> dict[str, JSONValue]:
        """Return the JSON object that a journal line holds."""
        ...


T = TypeVar("T", bound=Numbered)


class Journaled(ABC, Generic[T]):
    """Trials in a `Journal`; a context manager that releases it.

    Attributes:
        trials: the finished trials, in order of their numbers.
        notes: what was mended while opening, one sentence each.
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
        try:
            for record in self._journal.records:
                self.trials.append(self._read(record))
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
        """Make the search's own settings part of the header, or check them against it.

        Raises:
            SearchError: the journal was written with other settings.
        """
        self._journal.bind(settings)

    def close(self) -> None:
        """Release the journal; closing twice is allowed."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep(self, trial: T, what: str) -> T:
        """Append `trial`; `what` names it in messages."""
        self._journal.append(trial.to_json(), what)
        self.trials.append(trial)
        return trial

    def _read(self, record: Mapping[str, JSONValue]) -> T:
        number = len(self.trials)
        place = self._journal.place(number)
        try:
            trial = self._parsed(record)
        except ArgumentError as error:
            raise SearchError(f"{place}: {error}") from error
        if trial.number != number:
            raise SearchError(
                f"{place} is trial {trial.number} where trial {number} must stand, so a line was "
                "lost or doubled. Restore the journal from a copy, or delete it to start again."
            )
        return trial

"""The persisted journal of a search: one header line, then one line per finished trial."""

import datetime as dt
import json
import logging
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import IO, Self

from nncfx.errors import ArgumentError, SearchError
from nncfx.search.trials import JSONValue, Measurement, Stage, Trial

__all__ = ["JOURNAL_VERSION", "Study"]

JOURNAL_VERSION = 1
_FORMAT = "nncfx-study"
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
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        self._path = None if path is None else pathlib.Path(path)
        self._header = _canonical(header or {}, "the header of the study")
        self._settings: dict[str, JSONValue] | None = None
        self._file: IO[bytes] | None = None
        if self._path is not None:
            self._open(self._path)

    def bind(self, settings: Mapping[str, JSONValue]) -> None:
        """Make the search's own settings part of the header, or check them against it.

        Raises:
            SearchError: the journal was written with other settings.
        """
        settings = _canonical(settings, "the settings of the search")
        if self._settings is None:
            self._settings = settings
            if self._file is not None:
                self._write_header()
        else:
            self._compare("search", self._settings, settings)

    def run(self, stage: Stage, level: float, evaluate: Callable[[float], Measurement]) -> Trial:
        """Evaluate `level`, append the trial to the journal, and return it.

        A trial fails when `evaluate` raises an Exception or returns a metric or an objective
        that is not finite; the failure is recorded and logged, not raised. KeyboardInterrupt and
        SystemExit pass, and leave no trial.

        Raises:
            ArgumentError: `evaluate` returned something that cannot be recorded.
        """
        started = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        clock = time.perf_counter()
        measurement: Measurement | None = None
        error: str | None = None
        try:
            measurement = evaluate(level)
        except Exception as reason:  # noqa: BLE001 (recorded and logged; the search goes on)
            error = f"{type(reason).__name__}: {reason}"
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
            seconds=round(time.perf_counter() - clock, 3),
            started=started,
        )
        if error is not None:
            _LOGGER.warning("Trial %d at level %g failed: %s", trial.number, level, error)
        self._append(trial)
        return trial

    def close(self) -> None:
        """Release the journal; closing twice is allowed."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, path: pathlib.Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as error:
            raise SearchError(
                f"The journal {path} cannot be written ({error}). Use a folder that exists or "
                "can be made, and that you may write to."
            ) from error
        try:
            _lock(self._file, path)
            self._read(path)
        except BaseException:
            self.close()
            raise

    def _read(self, path: pathlib.Path) -> None:
        file = self._opened()
        file.seek(0)
        content = file.read()
        whole, torn = content[: content.rfind(b"\n") + 1], content[content.rfind(b"\n") + 1 :]
        lines = whole.splitlines()
        if lines:
            self._read_header(lines[0], path)
        for number, line in enumerate(lines[1:], start=2):
            self.trials.append(_parse_trial(line, len(self.trials), f"{path}, line {number}"))
        if torn:
            file.truncate(len(whole))
            note = f"The last line of {path} was torn (killed while writing) and is dropped."
            self.notes.append(note)
            _LOGGER.warning(note)

    def _read_header(self, line: bytes, path: pathlib.Path) -> None:
        header = _parse(line, f"{path}, line 1")
        if header.get("format") != _FORMAT:
            raise SearchError(
                f"{path} is not a study: its first line has no format '{_FORMAT}'. "
                "Give the path of a journal, or of a file that does not exist yet."
            )
        if header.get("version") != JOURNAL_VERSION:
            raise SearchError(
                f"{path} has journal version {header.get('version')!r}, and this nncfx reads "
                f"version {JOURNAL_VERSION}. Read it with the nncfx that wrote it, or delete it."
            )
        written, settings = header.get("header"), header.get("search")
        if not isinstance(written, dict) or not isinstance(settings, dict | None):
            raise SearchError(
                f"{path}, line 1: 'header' or 'search' is not an object, so the journal is "
                "damaged. Restore it from a copy, or delete it to start again."
            )
        self._compare("header", written, self._header)
        self._settings = settings

    def _compare(
        self, part: str, written: Mapping[str, JSONValue], given: Mapping[str, JSONValue]
    ) -> None:
        missing = object()
        for key in sorted({*written, *given}):
            before, now = written.get(key, missing), given.get(key, missing)
            if before != now:
                was = "nothing" if before is missing else json.dumps(before)
                asked = "nothing" if now is missing else json.dumps(now)
                raise SearchError(
                    f"The study in {self._path or 'memory'} has '{key}' = {was} in its {part}, "
                    f"and this search has {asked}: their trials cannot be mixed. "
                    "Use another folder, or delete the journal to start again."
                )

    def _write_header(self) -> None:
        header: dict[str, JSONValue] = {
            "format": _FORMAT,
            "version": JOURNAL_VERSION,
            "header": self._header,
            "search": self._settings,
        }
        self._write(header)

    def _append(self, trial: Trial) -> None:
        record = _canonical(
            trial.to_json(), f"what the evaluation of level {trial.level} returned"
        )
        if self._path is not None:
            if self._opened().seek(0, os.SEEK_END) == 0:
                self._write_header()
            self._write(record)
        self.trials.append(trial)

    def _write(self, record: Mapping[str, JSONValue]) -> None:
        file = self._opened()
        file.write(json.dumps(record, allow_nan=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            raise SearchError(
                f"The study in {self._path} is closed, so nothing can be recorded in it. "
                "Open it again with Study(path, header)."
            )
        return self._file


def _lock(file: IO[bytes], path: pathlib.Path) -> None:
    import fcntl  # POSIX only; a study in memory works anywhere

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise SearchError(
            f"{path} is in use by another search, and two would write over each other. "
            "Wait for it to end or stop it, or use another folder."
        ) from error


def _canonical(values: Mapping[str, JSONValue], what: str) -> dict[str, JSONValue]:
    """Return `values` as JSON reads them back (tuples become lists)."""
    try:
        parsed: dict[str, JSONValue] = json.loads(json.dumps(dict(values), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{what[:1].upper()}{what[1:]} is not made of JSON values ({error}), so it cannot be "
            "kept in a journal. Use finite numbers, text, lists and dicts with text keys."
        ) from error
    return parsed


def _parse(line: bytes, place: str) -> dict[str, JSONValue]:
    try:
        parsed = json.loads(line)
    except ValueError as error:
        raise SearchError(
            f"{place} is not JSON ({error}), so the journal is damaged. "
            "Restore it from a copy, or delete it to start again."
        ) from error
    if not isinstance(parsed, dict):
        raise SearchError(
            f"{place} is not a JSON object, so the journal is damaged. "
            "Restore it from a copy, or delete it to start again."
        )
    return parsed


def _parse_trial(line: bytes, number: int, place: str) -> Trial:
    try:
        trial = Trial.from_json(_parse(line, place))
    except ArgumentError as error:
        raise SearchError(f"{place}: {error}") from error
    if trial.number != number:
        raise SearchError(
            f"{place} is trial {trial.number} where trial {number} must stand, so a line was lost "
            "or doubled. Restore the journal from a copy, or delete it to start again."
        )
    return trial

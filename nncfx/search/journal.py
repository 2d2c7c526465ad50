"""A persistent file of JSON lines: one header line, then one line per record."""

import json
import logging
import os
import pathlib
from collections.abc import Mapping
from typing import IO

from typing_extensions import override

from nncfx.closing import Closing
from nncfx.errors import ArgumentError, SearchError
from nncfx.locks import lock
from nncfx.search.trials import JSONValue
from nncfx.storage.formats.line_file import append_line, could_begin, json_line, whole_and_torn
from nncfx.storage.formats.whole_file import sync

JOURNAL_VERSION = 1
_FORMAT = "nncfx-study"
_BEGINNING = json.dumps({"format": _FORMAT}).encode()[:-1]
_BUDGET = {"max_evaluations"}
_LOGGER = logging.getLogger(__name__)


class Journal(Closing):
    """The records of one search, each on disk before the next is created.

    The first line is the header: format, version, and what must not change between runs. Each
    further line is one record, appended and fsync'ed. Opening an existing journal with the same
    header reads the records back. A torn last line, left by a process killed while writing, is
    dropped (see `notes`). A lock on the file is held until `close` (the journal is a context
    manager).

    Attributes:
        records: the records, in order.
        notes: repairs made while opening, one sentence each.

    Args:
        path: the file; its folder is created. None keeps the records in memory only.
        header: identifies the search, JSON values; compared key by key on resuming.
        data: facts about the data; also compared, if the journal has some.

    Raises:
        SearchError: the file belongs to another search or is not a journal, is damaged before its
            last line, was written by a newer nncfx, or is in use by another process. It is not
            changed.
        ArgumentError: the header holds something that is not a JSON value.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        header: Mapping[str, JSONValue] | None = None,
        data: Mapping[str, JSONValue] | None = None,
    ) -> None:
        self.records: list[dict[str, JSONValue]] = []
        self.notes: list[str] = []
        self._path = None if path is None else pathlib.Path(path)
        self._header = _canonical(header or {}, "the header of the study")
        self._data = _canonical(data or {}, "what is known of the data")
        self._settings: dict[str, JSONValue] | None = None
        self._file: IO[bytes] | None = None
        self._size = 0
        if self._path is not None:
            self._open(self._path)

    def bind(self, settings: Mapping[str, JSONValue]) -> None:
        """Add the search's own settings to the header, or check them against it.

        The number of allowed evaluations does not count: a search that has ended can continue with
        more.

        Raises:
            SearchError: the journal was written with other settings.
        """
        settings = _canonical(settings, "the settings of the search")
        if self._settings is None:
            self._settings = settings
            if self._file is not None:
                self._write_header()
        else:
            self._compare(
                "search",
                self._settings | {k: settings[k] for k in _BUDGET & settings.keys()},
                settings,
            )

    def append(self, record: Mapping[str, JSONValue], what: str) -> None:
        """Append `record`; `what` names it in messages.

        Raises:
            ArgumentError: it holds something that is not a JSON value.
            SearchError: the journal is closed, or cannot be written.
        """
        written = _canonical(record, what)
        if self._path is not None:
            if not self._size:
                self._write_header()
            self._write(written)
        self.records.append(written)

    def place(self, number: int) -> str:
        """Return the place of record `number`, from 0: file and line."""
        return f"{self._path or 'memory'}, line {number + 2}"

    @override
    def close(self) -> None:
        """Release the journal; closing twice is allowed."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, path: pathlib.Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b", buffering=0)
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            _hold(self._file, path)
            self._read(path)
        except BaseException:
            self.close()
            raise

    def _read(self, path: pathlib.Path) -> None:
        content = path.read_bytes()
        lines, torn = whole_and_torn(content)
        if content and not could_begin(content, _BEGINNING):
            raise SearchError(
                f"{path} is not a study: it does not begin with {_BEGINNING.decode()!r}. It is "
                "left as it is. Give the path of a journal, or of a file that does not exist yet."
            )
        if lines:
            self._read_header(lines[0], path)
        for number, line in enumerate(lines[1:]):
            self.records.append(_parse(line, self.place(number)))
        self._size = len(content) - len(torn)
        if torn:
            self._opened().truncate(self._size)
            note = f"The last line of {path} was torn (killed while writing) and is dropped."
            self.notes.append(note)
            _LOGGER.warning(note)

    def _read_header(self, line: bytes, path: pathlib.Path) -> None:
        header = _parse(line, f"{path}, line 1")
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
        known = header.get("data")
        if isinstance(known, dict) and self._data:
            self._compare("data", known, self._data)
        self._settings = settings

    def _compare(
        self, part: str, written: Mapping[str, JSONValue], given: Mapping[str, JSONValue]
    ) -> None:
        missing = object()
        for key in dict.fromkeys([*given, *written]):  # the most informative keys come first
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
            # absent if unknown, as in the journals of earlier versions
            **({"data": self._data} if self._data else {}),
        }
        self._write(header)

    def _write(self, record: Mapping[str, JSONValue]) -> None:
        handle, line = self._opened().fileno(), json.dumps(record, allow_nan=False).encode()
        try:
            is_new = not self._size
            self._size = append_line(handle, self._size, line + b"\n")
            if is_new and self._path is not None:
                sync(self._path.parent)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            raise SearchError(
                f"The study in {self._path} is closed, so nothing can be recorded in it. "
                "Open it again with Study(path, header)."
            )
        return self._file


def _hold(file: IO[bytes], path: pathlib.Path) -> None:
    if not lock(file.fileno()):
        raise SearchError(
            f"{path} is in use by another search, and the two would overwrite each other. Wait "
            "for it to end or stop it, or use another folder."
        )


def _canonical(values: Mapping[str, JSONValue], what: str) -> dict[str, JSONValue]:
    """Return `values` as JSON reads them back (tuples become lists)."""
    try:
        parsed = dict(json_line(json.dumps(dict(values), allow_nan=False).encode()))
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(
            f"{what[:1].upper()}{what[1:]} is not made of JSON values ({error}), so it cannot be "
            "kept in a journal. Use finite numbers, text, lists and dicts with text keys."
        ) from error
    return parsed


def _parse(line: bytes, place: str) -> dict[str, JSONValue]:
    try:
        return dict(json_line(line))
    except ValueError as error:
        raise SearchError(
            f"{place} is not JSON ({error}), so the journal is damaged. "
            "Restore it from a copy, or delete it to start again."
        ) from error


def _unwritable(path: pathlib.Path | None, error: OSError) -> SearchError:
    return SearchError(
        f"The journal {path} cannot be written ({error}). Use a folder that exists or can be "
        "made, that you may write to, on a disk with room."
    )

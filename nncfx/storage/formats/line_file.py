"""Append to files of JSON lines, with each line on disk before the next is appended.

A file is recognized as ours before it is changed, because a line without an end can be the torn
line of a killed process, which is cut off, or all of a foreign file, which is left alone.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from nncfx.storage.formats.whole_file import sync
from nncfx.untrusted import read_json


@final
@dataclass(frozen=True, kw_only=True)
class LineFile:
    """A file of lines in the state in which it was read; it need not exist.

    Attributes:
        path: The path of the file.
        lines: The complete lines, without line ends.
        torn: The bytes after them, which the next appended line overwrites.
    """

    path: Path
    lines: tuple[bytes, ...]
    torn: bytes

    def append(self, line: bytes) -> None:
        """Append `line`, which has a line end, and flush it to disk; create the folder if needed.

        Raises:
            OSError: the file cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            append_line(handle, sum(len(one) + 1 for one in self.lines), line)
        finally:
            os.close(handle)
        if not self.lines:
            sync(self.path.parent)


def read_lines(path: Path) -> LineFile:
    """Return the file at `path`; it has no lines if it does not exist.

    Raises:
        OSError: the file cannot be read.
    """
    lines, torn = whole_and_torn(path.read_bytes() if path.exists() else b"")
    return LineFile(path=path, lines=tuple(lines), torn=torn)


def whole_and_torn(content: bytes) -> tuple[list[bytes], bytes]:
    r"""Return the complete lines, without line ends, and the bytes after the last of them.

    >>> whole_and_torn(b'{"a": 1}\n{"b')
    ([b'{"a": 1}'], b'{"b')
    """
    *lines, torn = content.split(b"\n")
    return lines, torn


def could_begin(line: bytes, beginning: bytes) -> bool:
    """Return whether `line`, possibly torn, could begin with `beginning`.

    >>> could_begin(b'{"for', b'{"format": "x"'), could_begin(b'[1, 2]', b'{"format": "x"')
    (True, False)
    """
    return line.startswith(beginning) or beginning.startswith(line)


def append_line(handle: int, size: int, line: bytes) -> int:
    """Write `line` after the first `size` bytes of an open file, to disk; return the new size.

    Bytes after `size` come from an unfinished write and are removed. If this write fails, its
    bytes are removed as well, if possible.

    Raises:
        OSError: the file cannot be written.
    """
    os.ftruncate(handle, size)
    os.lseek(handle, size, os.SEEK_SET)
    try:
        left = memoryview(line)
        while left:  # a disk that is nearly full takes only a part
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, size)
        raise
    return size + len(line)


def json_line(line: bytes) -> Mapping[str, Any]:
    """Return the JSON object in a line, which must have finite numbers and little nesting.

    Raises:
        ValueError: the line holds something else.
    """
    found = read_json(line)
    if not isinstance(found, dict):
        raise ValueError(f"{found!r:.60} is not an object")  # noqa: TRY004 (of the value)
    return found

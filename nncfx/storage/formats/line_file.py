"""Files of JSON lines to which lines are appended, each on disk before the next is made.

Such a file is known as ours before it is touched: a line without its end may be what a killed
process left, which is cut off, or the whole of somebody else's file, which is not.
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
    """A file of lines as it was when it was read; it need not exist.

    Attributes:
        path: Where it is, or will be.
        lines: Those that have an end, without it.
        torn: What stands behind them; the next line that is appended takes its place.
    """

    path: Path
    lines: tuple[bytes, ...]
    torn: bytes

    def append(self, line: bytes) -> None:
        """Write `line`, which has an end, behind the others, onto the disk; make the folder.

        Raises:
            OSError: it cannot be written.
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
        OSError: it cannot be read.
    """
    lines, torn = whole_and_torn(path.read_bytes() if path.exists() else b"")
    return LineFile(path=path, lines=tuple(lines), torn=torn)


def whole_and_torn(content: bytes) -> tuple[list[bytes], bytes]:
    r"""Return the lines that have an end, without it, and what stands behind the last of them.

    >>> whole_and_torn(b'{"a": 1}\n{"b')
    ([b'{"a": 1}'], b'{"b')
    """
    *lines, torn = content.split(b"\n")
    return lines, torn


def could_begin(line: bytes, beginning: bytes) -> bool:
    """Say whether `line`, perhaps torn, is one of those that begin with `beginning`.

    >>> could_begin(b'{"for', b'{"format": "x"'), could_begin(b'[1, 2]', b'{"format": "x"')
    (True, False)
    """
    return line.startswith(beginning) or beginning.startswith(line)


def append_line(handle: int, size: int, line: bytes) -> int:
    """Write `line` behind the first `size` bytes of an open file, onto the disk; return the size.

    What stands behind them is what an earlier write left unfinished, and goes. So does, if it can,
    what this one leaves when it fails.

    Raises:
        OSError: it cannot be written.
    """
    os.ftruncate(handle, size)
    os.lseek(handle, size, os.SEEK_SET)
    try:
        left = memoryview(line)
        while left:  # a disk that fills takes a part first
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, size)
        raise
    return size + len(line)


def json_line(line: bytes) -> Mapping[str, Any]:
    """Return the JSON object that a line holds, made of finite numbers and not nested deeply.

    Raises:
        ValueError: it holds something else.
    """
    found = read_json(line)
    if not isinstance(found, dict):
        raise ValueError(f"{found!r:.60} is not an object")  # noqa: TRY004 (of the value)
    return found

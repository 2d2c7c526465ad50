"""Files that appear whole or not at all, and files to read."""

import contextlib
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nncfx.errors import StorageError

__all__ = ["SavedFile", "open_file", "write_whole"]


@dataclass(frozen=True, kw_only=True)
class SavedFile:
    """A file that was written: where, and its size on disk in bytes."""

    path: Path
    size_bytes: int


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Return the file at `path`, open for reading.

    Raises:
        StorageError: It cannot be read.
    """
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise StorageError(f"'{path}' cannot be read ({error}). Check the path.") from error


def write_whole(path: Path, parts: Iterable[bytes | memoryview]) -> SavedFile:
    """Write `parts` under a temporary name beside `path`, then rename it to `path`.

    Missing folders are made. Each part is asked for when the one before is written.

    Raises:
        StorageError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            size = sum(file.write(part) for part in parts)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StorageError(
            f"'{path}' cannot be written ({error}). Use a path that you may write to."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return SavedFile(path=path, size_bytes=size)

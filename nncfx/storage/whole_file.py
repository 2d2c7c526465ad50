"""Files that appear whole or not at all."""

import contextlib
import os
import secrets
from pathlib import Path

from nncfx.errors import StorageError

__all__ = ["write_whole"]


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` under a temporary name beside `path`, then rename it to `path`.

    Missing folders are made.

    Raises:
        StorageError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(data)
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

"""Write files atomically and durably, as all of nncfx does, and read files.

A file is written under a temporary name in the same folder, fsync'ed and renamed, and its folder
is fsync'ed. So a reader sees the old file or the new file, even if the process or machine fails.
"""

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from safetensors import SafetensorError

from nncfx.errors import NNCFXError, StorageError
from nncfx.json_codec import load_object
from nncfx.locks import lock

_UNSYNCED: Final = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)
"""Errors of file systems that cannot fsync folders, and of systems that cannot open them."""

_NAMED: Final = 10
"""How many files of a folder a message names."""


@dataclass(frozen=True, kw_only=True)
class SavedFile:
    """A file that was written: its path and its size on disk in bytes."""

    path: Path
    size_bytes: int


def check_source(path: Path) -> None:
    """Refuse a `path` that is not a file.

    Raises:
        StorageError: nothing is there, or a folder, whose files the message names.
    """
    if path.is_dir():
        names = sorted(one.name for one in path.iterdir() if one.is_file())
        held = f" It holds {', '.join(names[:_NAMED])}." if names else ""
        raise StorageError(f"'{path}' is a folder, and one file is read.{held} Name the file.")
    if not path.is_file():
        raise StorageError(f"There is no file '{path}'. Check the path.")


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Return the file at `path`, open for reading.

    Raises:
        StorageError: The file cannot be read.
    """
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise StorageError(f"'{path}' cannot be read ({error}). Check the path.") from error


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Replace "the file" by `path` in errors of the block, whose code does not know the path."""
    try:
        yield
    except StorageError as error:
        error.args = (re.sub(r"\b[Tt]he file\b", lambda _: f"'{path}'", str(error), count=1),)
        raise


def read_text(path: str | Path) -> str:
    """Return the text of the UTF-8 file at `path`.

    Raises:
        StorageError: The file cannot be read, or is not UTF-8 text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"'{path}' cannot be read: {error.strerror}. Check the path."
        ) from error
    except UnicodeDecodeError as error:
        raise StorageError(
            f"'{path}' is not UTF-8 text at byte {error.start}; it is not a file of this kind."
        ) from error


def read_object(path: str | Path, what: str) -> dict[str, Any]:
    """Return the JSON object in the file at `path`; `what` and the path name it in messages.

    Raises:
        StorageError: The file cannot be read, or holds something else.
    """
    return load_object(read_text(path), f"{what} '{path}'")


def check_destination(path: str | os.PathLike[str]) -> None:
    """Refuse a `path` that is a folder or a device.

    Raises:
        StorageError: A folder or a device is there.
    """
    target = Path(path)
    if target.is_dir():
        raise StorageError(f"'{path}' is a folder. Name the file in it.")
    if target.exists() and not target.is_file():
        raise StorageError(f"'{path}' is a device or a pipe. Name a file.")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a `path` to which `writing` could not write; create its folders.

    Raises:
        StorageError: A folder or a device is there, or no file can be created in its folder.
    """
    target = Path(path)
    check_destination(target)
    with _told(target), making(target.parent), tempfile.TemporaryFile(dir=target.parent):
        pass


def write_whole(path: Path, parts: Iterable[bytes | memoryview]) -> SavedFile:
    """Write `parts` to `path` by `writing`; each part is requested after the previous is written.

    Raises:
        StorageError: the file cannot be written.
    """
    with writing(path) as draft, draft.open("wb") as file:
        size = sum(file.write(part) for part in parts)
    return SavedFile(path=path, size_bytes=size)


def write_text(path: str | Path, text: str) -> Path:
    """Write `text` in UTF-8 to `path` under a temporary name first, and return the path.

    Missing folders are created. A reader sees the old file or the new file, never a part.

    Raises:
        StorageError: The folder cannot be created or written to.
    """
    return write_whole(Path(path), [text.encode()]).path


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path for a file, which is moved to `path`, on disk, after the body.

    Missing folders are created. Processes that write the same path take turns. If the body raises,
    the previous file stays. The next process to write this path reuses the temporary file that a
    killed process left. The file keeps the permissions of the previous file; a new file has those
    of the umask.

    Raises:
        StorageError: the file cannot be written.
    """
    target = Path(path)
    check_destination(target)
    with _told(target), making(target.parent):
        draft = target.with_name(f".{target.name}.part")
        # a separate file, because safetensors renames another file onto the draft
        lock = target.with_name(f".{target.name}.lock")
        with _claimed(lock, lambda: os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)):
            try:
                mode = _mode(target, lock)
                yield draft
                draft.chmod(mode)  # some libraries create files that only the owner can read
                sync(draft)
                draft.replace(target)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
            finally:
                with contextlib.suppress(OSError):  # Windows cannot delete open files
                    lock.unlink()
            sync(target.parent)


@contextlib.contextmanager
def writing_files(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield an empty folder for a file with the name of `path` and further files; see `writing`.

    After the body they are moved to the folder of `path`, the file with the name of `path` last.

    Raises:
        StorageError: a file cannot be written.
    """
    target = Path(path)
    check_destination(target)
    with _told(target), making(target.parent):
        draft = target.with_name(f".{target.name}.parts")
        with _claimed(draft, lambda: _opened_folder(draft)):
            try:
                for left in draft.iterdir():
                    left.unlink()
                yield draft
                files = sorted(draft.iterdir(), key=lambda file: file.name == target.name)
                for file in files:
                    file.chmod(_mode(target.parent / file.name, draft))
                    sync(file)
                for file in files:
                    file.replace(target.parent / file.name)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
            sync(target.parent)


@contextlib.contextmanager
def making(folder: Path) -> Iterator[None]:
    """Create `folder` and its parents; if the body raises, remove new folders that are empty."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # a folder with content stays, and its parents
            for one in made:
                one.rmdir()
        raise


def sync(path: Path) -> None:
    """Flush the content of a file, or the names in a folder, to disk."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        if path.is_dir() and error.errno in _UNSYNCED:
            return
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if not (path.is_dir() and error.errno in _UNSYNCED):
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def _told(target: Path) -> Iterator[None]:
    try:
        yield
    except NNCFXError:
        raise
    except (OSError, SafetensorError) as error:
        raise StorageError(
            f"'{target}' cannot be written ({error}). Use a path that you may write to, on a disk "
            "with room."
        ) from error


@contextlib.contextmanager
def _claimed(draft: Path, opened: Callable[[], int]) -> Iterator[None]:
    """Hold a lock on the file or folder `draft`; the lock ends with the process."""
    while True:
        handle = opened()
        try:
            lock(handle, wait=True)
            # otherwise the previous holder of the lock has renamed or removed it
            if _is_open(draft, handle):
                yield
                return
        finally:
            os.close(handle)


def _mode(target: Path, draft: Path) -> int:
    """Return the read and write permissions of the existing file or, without one, of the draft."""
    return (target if target.exists() else draft).stat().st_mode & 0o666


def _is_open(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _opened_folder(folder: Path) -> int:
    folder.mkdir(exist_ok=True)
    return os.open(folder, os.O_RDONLY)

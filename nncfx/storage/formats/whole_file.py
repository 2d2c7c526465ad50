"""The one way in which nncfx writes files: whole and on disk, or not at all; and files to read.

A file is written under a temporary name beside its own, fsync'ed and renamed, and its folder is
fsync'ed. So a reader sees the old file or the new one, whatever happens to process or machine.
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
"""What file systems say that cannot fsync folders, and systems that cannot open them."""

_NAMED: Final = 10
"""So many files of a folder are named in a message."""


@dataclass(frozen=True, kw_only=True)
class SavedFile:
    """A file that was written: where, and its size on disk in bytes."""

    path: Path
    size_bytes: int


def check_source(path: Path) -> None:
    """Refuse a `path` where no file is.

    Raises:
        StorageError: there is nothing, or a folder, whose files are named.
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
        StorageError: It cannot be read.
    """
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise StorageError(f"'{path}' cannot be read ({error}). Check the path.") from error


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let errors in the block name `path`, where what reads its bytes can say "the file" only."""
    try:
        yield
    except StorageError as error:
        error.args = (re.sub(r"\b[Tt]he file\b", lambda _: f"'{path}'", str(error), count=1),)
        raise


def read_text(path: str | Path) -> str:
    """Return the text of the UTF-8 file at `path`.

    Raises:
        StorageError: There is no such file, or it is not UTF-8 text.
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
        StorageError: There is no such file, or it holds something else.
    """
    return load_object(read_text(path), f"{what} '{path}'")


def check_destination(path: str | os.PathLike[str]) -> None:
    """Refuse what a file called `path` would stand in place of.

    Raises:
        StorageError: A folder or a device is there.
    """
    target = Path(path)
    if target.is_dir():
        raise StorageError(f"'{path}' is a folder. Name the file in it.")
    if target.exists() and not target.is_file():
        raise StorageError(f"'{path}' is a device or a pipe. Name a file.")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a `path` that `writing` could not write to; its folders are made.

    Raises:
        StorageError: A folder or a device is there, or no file can be made beside it.
    """
    target = Path(path)
    check_destination(target)
    with _told(target), making(target.parent), tempfile.TemporaryFile(dir=target.parent):
        pass


def write_whole(path: Path, parts: Iterable[bytes | memoryview]) -> SavedFile:
    """Write `parts` to `path` as `writing` does; each is asked for when the one before is written.

    Raises:
        StorageError: the file cannot be written.
    """
    with writing(path) as draft, draft.open("wb") as file:
        size = sum(file.write(part) for part in parts)
    return SavedFile(path=path, size_bytes=size)


def write_text(path: str | Path, text: str) -> Path:
    """Write `text` in UTF-8 to `path` by way of a temporary name and return the path.

    Missing folders are made. A reader sees the old file or the new one, never a part.

    Raises:
        StorageError: The folder cannot be made or written to.
    """
    return write_whole(Path(path), [text.encode()]).path


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name to write a file under; after the body it stands at `path`, on disk.

    Missing folders are made. Processes that write the same path do so one after the other. A body
    that raises leaves what was there before. What a killed process leaves under the temporary
    name, the next one to write this path takes over. The file may be read and written by those
    who may the one before, else by those whom the umask lets.

    Raises:
        StorageError: the file cannot be written.
    """
    target = Path(path)
    check_destination(target)
    with _told(target), making(target.parent):
        draft = target.with_name(f".{target.name}.part")
        # a file apart: safetensors writes another one, and renames that onto the draft
        lock = target.with_name(f".{target.name}.lock")
        with _claimed(lock, lambda: os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)):
            try:
                mode = _mode(target, lock)
                yield draft
                draft.chmod(mode)  # libraries write files of their own, some for the owner alone
                sync(draft)
                draft.replace(target)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
            finally:
                with contextlib.suppress(OSError):  # Windows keeps what is open
                    lock.unlink()
            sync(target.parent)


@contextlib.contextmanager
def writing_files(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give an empty folder for a file called as `path` and others beside it; see `writing`.

    After the body they stand in the folder of `path`, the file called as `path` last.

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
    """Make `folder` and those above it; a body that raises leaves none of them without content."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # one that holds something stays, and those above
            for one in made:
                one.rmdir()
        raise


def sync(path: Path) -> None:
    """See the content of a file, or the names in a folder, onto the disk."""
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
    """Hold a lock on the file or folder `draft`, which ends with the process."""
    while True:
        handle = opened()
        try:
            lock(handle, wait=True)
            # else the one who held the lock before has renamed or removed it
            if _is_open(draft, handle):
                yield
                return
        finally:
            os.close(handle)


def _mode(target: Path, draft: Path) -> int:
    """Return who may read and write: as of the file that is there, else as of the new draft."""
    return (target if target.exists() else draft).stat().st_mode & 0o666


def _is_open(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _opened_folder(folder: Path) -> int:
    folder.mkdir(exist_ok=True)
    return os.open(folder, os.O_RDONLY)

"""Locks on files, by which processes keep out of each other's way; each ends with its process."""

import os
from pathlib import Path

__all__ = ["is_locked", "lock"]


def lock(handle: int, *, wait: bool = False) -> bool:
    """Take the lock of an open file, until it is closed.

    Args:
        handle: As `os.open` returns it, or `fileno` of a file.
        wait: Until another process ends that has it.

    Returns:
        False if another process has it. True where nobody can, too: neither Windows nor every
        network drive has such locks, and there two processes must not meet.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


def is_locked(file: Path) -> bool:
    """Return whether a process has the lock of `file`, which exists."""
    handle = os.open(file, os.O_RDONLY)
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        pass
    finally:
        os.close(handle)
    return False

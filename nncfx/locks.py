"""File locks between processes; a lock ends with its process."""

import os
from pathlib import Path

__all__ = ["is_locked", "lock"]


def lock(handle: int, *, wait: bool = False) -> bool:
    """Lock an open file until it is closed.

    Args:
        handle: As returned by `os.open`, or `fileno` of a file.
        wait: Wait until the process that has the lock ends.

    Returns:
        False if another process has the lock. Also True if locking is impossible: Windows and some
        network drives have no such locks, and there two processes must not use the same file.
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
    """Return whether a process has locked `file`, which must exist."""
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

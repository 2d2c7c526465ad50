"""The code that runs inside a worker."""

import ctypes
import dataclasses
import multiprocessing
import os
import pathlib
import pickle
import random
import signal
import socket
import sys
import threading
import zlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from nncfx.search.attempt import Attempt, attempt

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_EVALUATE: list[Callable[[Any], Any]] = []


@dataclasses.dataclass(frozen=True)
class Workplace:
    """Where a worker runs.

    Attributes:
        host: the name of its machine.
        process: its process id there.
    """

    host: str
    process: int


def place() -> Workplace:
    """Return where this process runs."""
    return Workplace(socket.gethostname(), os.getpid())


def begin(content: bytes | pathlib.Path, threads: int | None) -> Workplace:
    """Load the evaluation from `content`, or from the file of that name; return the workplace.

    The bytes were just written by the driver of the same search.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    written = content.read_bytes() if isinstance(content, pathlib.Path) else content
    _EVALUATE[:] = [pickle.loads(written)]  # noqa: S301 (written by the driver)
    return place()


def end_with_parent() -> None:
    """Ignore interrupts, which the driver handles, and end when the driver ends for any reason."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":  # the kernel also ends a stopped worker (SIGSTOP)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: Any) -> None:  # noqa: ANN401 (a private class of multiprocessing)
    parent.join()
    os._exit(1)


def evaluated(argument: object, what: str) -> Attempt[Any]:
    """Return the outcome of evaluating `argument`.

    Random numbers depend only on `what`: they are the same on every worker and in every try.

    Raises:
        MachineError: memory, disk or a device failed.
    """
    seed = zlib.crc32(what.encode())
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (used by transforms of images)
    torch.manual_seed(seed)
    (evaluate,) = _EVALUATE
    return attempt(lambda: evaluate(argument), what)

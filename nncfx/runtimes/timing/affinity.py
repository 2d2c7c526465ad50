"""Hold this process on some of the machine's processors while something is measured."""

import contextlib
import os
import sys
from collections.abc import Collection, Iterator

from nncfx.errors import ArgumentError


@contextlib.contextmanager
def pinned(cpus: Collection[int]) -> Iterator[None]:
    """Run the block on the processors `cpus` only; the former ones are restored after it.

    Threads that start inside inherit the choice and keep it: build sessions inside as well.

    Raises:
        ArgumentError: none is given, one does not exist or is not allowed to this process, or
            the system cannot hold a process.
    """
    if sys.platform != "linux":
        raise ArgumentError("Only Linux can pin a process to processors; leave it out.")
    before = os.sched_getaffinity(0)
    if not cpus or not set(cpus) <= before:
        raise ArgumentError(
            f"cpus is {sorted(cpus)}; this process may run on {sorted(before)}. Name some of them."
        )
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

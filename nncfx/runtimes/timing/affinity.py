"""Restricts this process to some processors during a measurement."""

import contextlib
import os
import sys
from collections.abc import Collection, Iterator

from nncfx.errors import ArgumentError


@contextlib.contextmanager
def pinned(cpus: Collection[int]) -> Iterator[None]:
    """Run the body on the processors `cpus` only, and restore the former ones afterwards.

    Threads that start inside keep the restriction: build sessions inside as well.

    Raises:
        ArgumentError: `cpus` is empty, a processor does not exist or is not allowed for this
            process, or the system does not support this.
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

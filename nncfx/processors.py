"""How many processors this process may run on."""

import os

__all__ = ["usable_processors"]


def usable_processors() -> int:
    """Return the number of processors that this process may run on, as far as the system tells."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

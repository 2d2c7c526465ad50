"""The ready objectives, which can be measured for every candidate."""

from operator import methodcaller
from typing import Final

from nncfx.objectives.objective import Objective

footprint: Final = Objective(
    "footprint", "bytes", maximize=False, measure=methodcaller("footprint_bytes")
)
"""Bytes of the non-zero parameters. Source: Condensa (Joseph et al., 2019), section 2."""

macs: Final = Objective("MACs", "", maximize=False, measure=methodcaller("macs"))
"""Multiply-accumulates of one example."""

parameters: Final = Objective("parameters", "", maximize=False, measure=methodcaller("parameters"))
"""Number of parameters, including zeros."""

throughput: Final = Objective(
    "throughput", "examples/s", maximize=True, measure=methodcaller("throughput")
)
"""Examples per second on the chosen runtime."""

latency: Final = Objective("latency", "ms", maximize=False, measure=methodcaller("latency_ms"))
"""Milliseconds of one call on the chosen runtime."""

file_size: Final = Objective(
    "file size", "bytes", maximize=False, measure=methodcaller("file_bytes")
)
"""Bytes of the model as a file on disk."""


_READY: Final = {
    one.name: one for one in (footprint, macs, parameters, throughput, latency, file_size)
}


def ready_objective(name: str) -> Objective | None:
    """Return the ready objective called `name` in reports; None for a user-defined one."""
    return _READY.get(name)

"""Energy of the processor packages, from the counters of RAPL where the platform has them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nncfx.errors import ArgumentError, RuntimeFailure
from nncfx.runtimes.timing import Clock

__all__ = ["Energy", "energy_counters", "energy_per_call"]

_POWERCAP: Final = Path("/sys/class/powercap")
_MICRO: Final = 1e-6


@dataclass(frozen=True)
class Energy:
    """Energy of the whole processor while a call runs, idle power and other work included.

    Attributes:
        joules: for one call.
        watts: average power.
        calls: how many were measured.
    """

    joules: float
    watts: float
    calls: int


def energy_counters(folder: Path = _POWERCAP) -> tuple[Path, ...]:
    """Return the folders of the packages' counters; none where the platform tells nothing.

    Virtual machines have none, and on most systems only root may read them.
    """
    packages = sorted(folder.glob("*-rapl:[0-9]*"))
    return tuple(
        package
        for package in packages
        if package.name.count(":") == 1 and (package / "energy_uj").is_file()
    )


def energy_per_call(
    call: Callable[[], object],
    *,
    seconds: float = 1.0,
    counters: tuple[Path, ...] | None = None,
    clock: Clock = time.perf_counter,
) -> Energy:
    """Return the energy of one `call`, averaged over as many as fill `seconds`, at least one.

    A counter that starts again from zero meanwhile is allowed for, once.

    Raises:
        ArgumentError: `seconds` is negative or not finite.
        RuntimeFailure: the platform has no counters, or they may not be read.
    """
    if not 0.0 <= seconds < float("inf"):
        raise ArgumentError(f"seconds is {seconds}; it must be a finite number, 0 or more.")
    counters = energy_counters() if counters is None else counters
    if not counters:
        raise RuntimeFailure(
            "This platform has no energy counters (RAPL, /sys/class/powercap), as is usual in a "
            "virtual machine. Measure on the machine itself.",
        )
    before = [_read(counter / "energy_uj") for counter in counters]
    start = clock()
    calls = 0
    while calls == 0 or clock() - start < seconds:
        call()
        calls += 1
    passed = clock() - start
    joules = sum(_used(counter, first) for counter, first in zip(counters, before, strict=True))
    return Energy(joules / calls, joules / passed if passed else 0.0, calls)


def _used(counter: Path, before: int) -> float:
    used = _read(counter / "energy_uj") - before
    return _MICRO * (used if used >= 0 else used + _read(counter / "max_energy_range_uj"))


def _read(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except PermissionError as error:
        raise RuntimeFailure(
            f"The energy counter '{path}' may not be read. Ask the machine's owner for "
            "the right to read it: sudo chmod a+r on that file.",
        ) from error

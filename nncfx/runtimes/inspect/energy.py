"""Energy of processors and GPUs, from the counters of RAPL and NVML if available."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from nncfx.errors import ArgumentError, RuntimeFailure, needing
from nncfx.runtimes.timing.stopwatch import Clock

_POWERCAP: Final = Path("/sys/class/powercap")
_MICRO: Final = 1e-6
_MILLI: Final = 1e-3


@dataclass(frozen=True)
class EnergyCounter:
    """The energy counter of one device.

    Attributes:
        name: of the device.
        joules: returns the reading.
        range_joules: the reading at which it wraps to zero; infinite if it never does.
    """

    name: str
    joules: Callable[[], float]
    range_joules: float = float("inf")


@dataclass(frozen=True)
class Energy:
    """Energy of whole devices during a call, including idle power and other work.

    Attributes:
        joules: for one call.
        watts: average power.
        calls: number of measured calls.
    """

    joules: float
    watts: float
    calls: int


def energy_counters() -> tuple[EnergyCounter, ...]:
    """Return the counters of all processors, and of all GPUs if torch sees one.

    Virtual machines have none for processors, and on most systems only root can read them.

    Raises:
        MissingExtraError: there is a GPU, and nvidia-ml-py is not installed.
        RuntimeFailure: NVML does not start.
    """
    return (*rapl_counters(), *(nvml_counters() if torch.cuda.is_available() else ()))


def rapl_counters(folder: Path = _POWERCAP) -> tuple[EnergyCounter, ...]:
    """Return the counters of the processor packages; empty if the platform has none."""
    packages = sorted(folder.glob("*-rapl:[0-9]*"))
    return tuple(
        EnergyCounter(
            package.name,
            _microjoules(package / "energy_uj"),
            _MICRO * int((package / "max_energy_range_uj").read_text(encoding="ascii")),
        )
        for package in packages
        if package.name.count(":") == 1 and (package / "energy_uj").is_file()
    )


def nvml_counters() -> tuple[EnergyCounter, ...]:
    """Return the counters of the NVIDIA GPUs that count energy (Volta and later).

    Raises:
        MissingExtraError: nvidia-ml-py is not installed.
        RuntimeFailure: NVML does not start, for example without a driver.
    """
    with needing("nvidia-ml-py", "nvml", "reading the energy of a GPU"):
        import pynvml
    try:
        pynvml.nvmlInit()
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(number)
            for number in range(pynvml.nvmlDeviceGetCount())
        ]
        return tuple(
            EnergyCounter(f"GPU {number}", _millijoules(pynvml, handle))
            for number, handle in enumerate(handles)
            if _counts(pynvml, handle)
        )
    except pynvml.NVMLError as error:
        raise RuntimeFailure(
            f"NVML does not report the energy of the GPUs here: {error}. Is a driver of NVIDIA "
            "loaded? nvidia-smi must work."
        ) from error


def energy_per_call(
    call: Callable[[], object],
    *,
    seconds: float = 1.0,
    counters: Sequence[EnergyCounter] | None = None,
    clock: Clock = time.perf_counter,
) -> Energy:
    """Return the energy of one `call`, averaged over as many as fit in `seconds`, at least one.

    A counter may wrap to zero once. Counters advance in steps (1 ms for processors, up to 100 ms
    for GPUs), which are negligible after a second or more.

    Args:
        call: the work.
        seconds: how long to repeat it.
        counters: of the devices involved; `energy_counters()` by default.
        clock: a monotonic clock in seconds.

    Raises:
        ArgumentError: `seconds` is negative or not finite.
        RuntimeFailure: the platform has no counters, or they cannot be read.
        MissingExtraError: there is a GPU, and nvidia-ml-py is not installed.
    """
    if not 0.0 <= seconds < float("inf"):
        raise ArgumentError(f"seconds is {seconds}; it must be a finite number, 0 or more.")
    counters = energy_counters() if counters is None else counters
    if not counters:
        raise RuntimeFailure(
            "This platform has no energy counters (RAPL, /sys/class/powercap), as is usual in a "
            "virtual machine. Measure on the machine itself."
        )
    before = [counter.joules() for counter in counters]
    start = clock()
    calls = 0
    while calls == 0 or clock() - start < seconds:
        call()
        calls += 1
    passed = clock() - start
    joules = sum(_used(counter, first) for counter, first in zip(counters, before, strict=True))
    return Energy(joules / calls, joules / passed if passed else 0.0, calls)


def _used(counter: EnergyCounter, before: float) -> float:
    used = counter.joules() - before
    return used if used >= 0 else used + counter.range_joules


def _microjoules(path: Path) -> Callable[[], float]:
    def joules() -> float:
        try:
            return _MICRO * int(path.read_text(encoding="ascii"))
        except PermissionError as error:
            raise RuntimeFailure(
                f"The energy counter '{path}' may not be read. Ask the machine's owner for "
                "the right to read it: sudo chmod a+r on that file."
            ) from error

    return joules


def _millijoules(pynvml: Any, handle: Any) -> Callable[[], float]:  # noqa: ANN401 (no types)
    return lambda: _MILLI * float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))


def _counts(pynvml: Any, handle: Any) -> bool:  # noqa: ANN401 (no types)
    try:
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except pynvml.NVMLError_NotSupported:
        return False
    return True

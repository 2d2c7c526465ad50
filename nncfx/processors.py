"""The processors of this machine: their number, and capabilities of the CPU."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["byte_sums_saturate", "cpu_capabilities", "usable_processors"]

_CPUINFO: Final = Path("/proc/cpuinfo")
_X86: Final = ("x86", "x86_64", "amd64", "i386", "i686")
_VNNI: Final = ("avx512_vnni", "avx_vnni")


def usable_processors() -> int:
    """Return the number of processors that this process may use, if the system reports it."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def byte_sums_saturate() -> bool:
    """Return whether this CPU adds products of bytes in 16 bits, which overflow.

    This holds for an x86 CPU unless torch (from 2.11 on) or Linux reports VNNI; without
    information True is the safe answer. Other processors add in 32 bits.
    """
    known = cpu_capabilities()
    if str(known.get("architecture")).lower() not in _X86:
        return False
    return not any(known.get(name, False) for name in _VNNI)


def cpu_capabilities() -> Mapping[str, object]:
    """Return the CPU capabilities known to torch; for an older torch, those in /proc/cpuinfo.

    Both use the same names for instructions.
    """
    import torch  # local, since most users of this module do not need it

    known: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    if known:
        return known
    text = _CPUINFO.read_text(encoding="utf-8", errors="replace") if _CPUINFO.exists() else ""
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    return {"architecture": platform.machine(), **dict.fromkeys(flags, True)}

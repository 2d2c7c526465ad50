"""What this process runs on: how many processors, and what the CPU can do."""

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
    """Return the number of processors that this process may run on, as far as the system tells."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def byte_sums_saturate() -> bool:
    """Return whether the CPU at hand adds products of bytes in 16 bits, which overflow.

    It does if it is an x86 of which neither torch (from 2.11 on) nor Linux tells that it has VNNI;
    where nothing is told, yes is the safe answer. Other processors add in 32 bits.
    """
    known = cpu_capabilities()
    if str(known.get("architecture")).lower() not in _X86:
        return False
    return not any(known.get(name, False) for name in _VNNI)


def cpu_capabilities() -> Mapping[str, object]:
    """Return what torch knows of the CPU; of an older torch, what /proc/cpuinfo says.

    Both call instructions by the same names.
    """
    import torch  # here, since most readers of this module need none

    known: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    if known:
        return known
    text = _CPUINFO.read_text(encoding="utf-8", errors="replace") if _CPUINFO.exists() else ""
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    return {"architecture": platform.machine(), **dict.fromkeys(flags, True)}

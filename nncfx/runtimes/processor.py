"""This machine's processor, and settings that depend on it."""

import platform
from pathlib import Path
from typing import Final

from nncfx.processors import byte_sums_saturate

EXACT_BYTE_SUMS: Final = ("session.x64quantprecision", "1")
"""The session config entry that makes ONNX Runtime add products of bytes exactly.

Without it, ONNX Runtime on an x86 without VNNI saturates sums of two products at 16 bits, and a
quantized model with 8-bit weights gives wrong results. With VNNI they are exact anyway, and the
entry makes integers 2.4 times as slow; `exact_byte_sums` returns it if it is needed.
"""
_CPUINFO: Final = Path("/proc/cpuinfo")


def exact_byte_sums() -> dict[str, str]:
    """Return `EXACT_BYTE_SUMS` as `{key: value}` if this CPU needs it, else an empty dict."""
    return dict([EXACT_BYTE_SUMS]) if byte_sums_saturate() else {}


def byte_products() -> str:
    """Return in words how nncfx's sessions of ONNX Runtime multiply bytes on this CPU."""
    if byte_sums_saturate():
        return "exact by the slower kernels (no VNNI known)"
    return "plain kernels, which are exact here"


def processor_kind() -> dict[str, str]:
    """Return the facts that must match for latencies of two machines to be comparable, by name."""
    return {"processor": processor_name(), "byte products": byte_products()}


def processor_name(cpuinfo: Path = _CPUINFO) -> str:
    """Return the first model name in a file like /proc/cpuinfo, else Python's name for it."""
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor()

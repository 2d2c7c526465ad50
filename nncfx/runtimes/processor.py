"""The processor at hand, and what nncfx's sessions choose by it."""

import platform
from pathlib import Path
from typing import Final

from nncfx.processors import byte_sums_saturate

EXACT_BYTE_SUMS: Final = ("session.x64quantprecision", "1")
"""The entry of a session's config with which ONNX Runtime adds products of bytes exactly.

Without it, ONNX Runtime on an x86 without VNNI saturates sums of two products at 16 bits, and a
quantized model with 8 bits of weights computes something else. With VNNI they are exact anyway,
and the entry makes integers 2.4 times as slow; `exact_byte_sums` gives it where it is needed.
"""
_CPUINFO: Final = Path("/proc/cpuinfo")


def exact_byte_sums() -> dict[str, str]:
    """Return `EXACT_BYTE_SUMS` as `{key: value}` if the CPU at hand needs it, else nothing."""
    return dict([EXACT_BYTE_SUMS]) if byte_sums_saturate() else {}


def byte_products() -> str:
    """Return in words how nncfx's sessions of ONNX Runtime multiply bytes on the CPU at hand."""
    if byte_sums_saturate():
        return "exact by the slower kernels (no VNNI known)"
    return "plain kernels, which are exact here"


def processor_kind() -> dict[str, str]:
    """Return what must be equal for latencies of two machines to compare, in words by name."""
    return {"processor": processor_name(), "byte products": byte_products()}


def processor_name(cpuinfo: Path = _CPUINFO) -> str:
    """Return the first model name in a file like /proc/cpuinfo, else what Python knows."""
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor()

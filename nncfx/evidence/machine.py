"""Facts about the machine and the software of a measurement."""

import importlib.metadata
import os
import platform
from pathlib import Path

from nncfx.processors import usable_processors

# The packages that can affect a measurement.
_PACKAGES = (
    "torch",
    "numpy",
    "onnx",
    "onnxruntime",
    "openvino",
    "tensorrt",
    "tensorrt-rtx-cu13-bindings",
    "botorch",
    "gpytorch",
)


def machine_facts() -> dict[str, str]:
    """Return processor, how it multiplies bytes, cores, memory, load and system of this machine.

    Unavailable facts are omitted. No network is used.

    >>> sorted(machine_facts())[:2]
    ['byte products', 'cores']
    """
    from nncfx.runtimes.processor import processor_kind  # imports torch

    facts = {
        **processor_kind(),
        "cores": f"{usable_processors()} usable of {os.cpu_count()}",
        "memory": _memory(Path("/proc/meminfo")),
        "load average": ", ".join(f"{value:.1f}" for value in os.getloadavg()),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    return {name: text for name, text in facts.items() if text}


def version_facts() -> dict[str, str]:
    """Return the versions of Python, nncfx and every relevant installed package.

    >>> {"python", "nncfx", "torch"} <= set(version_facts())
    True
    """
    facts = {"python": platform.python_version()}
    for package in ("nncfx", *_PACKAGES):
        try:
            facts[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return facts


def _memory(path: Path) -> str:
    """Return the total memory in GiB from a file like /proc/meminfo, else ""."""
    for line in _lines(path):
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return f"{int(value.split()[0]) / 2**20:.1f} GiB"
    return ""


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []

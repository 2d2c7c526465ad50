"""What is told of the CPU at hand, by torch and by the system."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nncfx import processors
from nncfx.processors import byte_sums_saturate


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"architecture": "x86_64", "avx2": True}, True),
        ({"architecture": "x86_64", "avx512_f": True, "avx512_vnni": False}, True),
        ({"architecture": "x86_64", "avx512_vnni": True}, False),
        ({"architecture": "x86_64", "avx_vnni": True}, False),
        ({"architecture": "aarch64", "neon": True}, False),
        ({"architecture": "AMD64", "avx2": True}, True),
    ],
)
def test_an_x86_without_vnni_saturates(
    monkeypatch: pytest.MonkeyPatch, known: dict[str, Any], expected: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    assert byte_sums_saturate() is expected


@pytest.mark.parametrize(
    ("machine", "cpuinfo", "expected"),
    [
        ("x86_64", "model name: Z80\nflags\t\t: fpu avx2 avx512_vnni\n", False),
        ("x86_64", "flags\t\t: fpu avx2 avx_vnni\n", False),
        ("x86_64", "flags\t\t: fpu avx2\n", True),
        ("x86_64", "", True),  # nothing is known: slower, and right
        ("AMD64", "", True),
        ("aarch64", "Features\t: fp asimd\n", False),
    ],
)
def test_of_an_old_torch_the_system_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine: str, cpuinfo: str, expected: bool
) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(cpuinfo)
    monkeypatch.setattr(processors, "_CPUINFO", file)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert byte_sums_saturate() is expected

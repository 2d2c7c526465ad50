"""What is told of the processor at hand."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nncfx.compressor import machine_facts
from nncfx.runtimes import EXACT_BYTE_SUMS, exact_byte_sums, processor
from nncfx.runtimes.processor import byte_sums_saturate, processor_name


@pytest.mark.parametrize(
    ("text", "name"),
    [("processor\t: 0\nmodel name\t: Zilog Z80\nmodel name\t: other\n", "Zilog Z80")],
)
def test_the_name_is_the_first_in_cpuinfo(tmp_path: Path, text: str, name: str) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(text)
    assert processor_name(file) == name


def test_without_cpuinfo_python_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.processor", lambda: "Z80")
    assert processor_name(tmp_path / "none") == "Z80"


@pytest.mark.parametrize(
    ("has_vnni", "entries", "told"),
    [
        (True, {}, "plain kernels, which are exact here"),
        (False, dict([EXACT_BYTE_SUMS]), "exact by the slower kernels (no VNNI known)"),
    ],
)
def test_evidence_tells_how_bytes_are_multiplied(
    monkeypatch: pytest.MonkeyPatch, has_vnni: bool, entries: dict[str, str], told: str
) -> None:
    known = {"architecture": "x86_64", "avx_vnni": has_vnni}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    assert exact_byte_sums() == entries
    assert machine_facts()["byte products"] == told


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
    monkeypatch: pytest.MonkeyPatch,
    known: dict[str, Any],
    expected: bool,
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
    monkeypatch.setattr(processor, "_CPUINFO", file)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert byte_sums_saturate() is expected

"""What is told of the processor at hand."""

from pathlib import Path

import pytest
import torch

from nncfx.compressor import machine_facts
from nncfx.runtimes import EXACT_BYTE_SUMS, exact_byte_sums
from nncfx.runtimes.processor import processor_name


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

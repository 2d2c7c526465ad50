"""What is said of the exported file of a task."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nncfx.cli.run_output import show_outcome
from nncfx.evidence.evidence import Evidence
from nncfx.runtimes import EXACT_BYTE_SUMS
from nncfx.tasks import exported_file, read_task, run_task

Write = Callable[..., Path]
SETTING = "session.x64quantprecision=1"


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "is_told"), [("disable", True), ("enable", False)])
def test_a_session_that_a_claim_needs_stands_beside_the_claim(
    bits: str,
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    is_told: bool,
) -> None:
    # as on a CPU without VNNI, where 8 bits of weights need it and 7 do not
    monkeypatch.setattr(exported_file, "exact_byte_sums", lambda: dict([EXACT_BYTE_SUMS]))
    compression = [{"algorithm": "quantization", "target": "onnxruntime", "overflow_fix": bits}]
    path = write(compression=compression, train={"epochs": 0}, export={"benchmark": True})
    out = tmp_path / "out"
    result = run_task(read_task(path), out)
    show_outcome(result)
    facts = json.loads((out / "result.json").read_text())
    examples = len(read_task(path).example_inputs)
    assert ("file_session" in facts) is is_told
    assert (facts["latency_batch"], facts["latency_threads"]) == (examples, None)
    notes = " ".join(Evidence.read(out / "evidence.json").notes)
    printed = capsys.readouterr().out
    call = f"batch {examples}, threads as the runtime chose"
    assert f" in onnxruntime ({call}), turn by turn " in printed
    assert f"onnxruntime, {call}; change" in (out / "report.html").read_text()
    for said in (printed, notes, (out / "report.html").read_text()):
        assert (SETTING in said) is is_told

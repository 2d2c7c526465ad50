"""Six tasks of a newcomer run within lines of code; those killed go on to the same end."""

import json
import re
import signal
from pathlib import Path

import pytest

from nncfx.search import Trial
from programs import Program, run

JOURNEYS = Path(__file__).parents[1] / "examples" / "journeys"
LINES = {
    "cnn_from_json": 12,
    "bert_in_trainer": 10,
    "llama_int4": 8,
    "detector_thinned": 8,
    "own_objective": 12,
    "gru_quantized": 8,
}
KILLED = {
    "cnn_from_json": ("training.ckpt", "cnn.onnx"),
    "bert_in_trainer": ("bert-run/checkpoint-8", "logits.pt"),
}
"""What is there when a script is killed, and what it writes at its end."""


def start(name: str, folder: Path) -> Program:
    folder.mkdir(exist_ok=True)
    return Program(folder, JOURNEYS / f"{name}.py")


def end(name: str, folder: Path) -> str:
    with start(name, folder) as journey:
        return journey.ended().stdout


def test_lines_of_own_code() -> None:
    """Lines between the marks, blank ones and comments left out; issue 24 sets the limits."""
    assert set(LINES) == {one.stem for one in JOURNEYS.glob("*.py")}
    for name, most in LINES.items():
        text = (JOURNEYS / f"{name}.py").read_text()
        parts = re.findall(r"^# nncfx\n(.*?)^# end$", text, re.MULTILINE | re.DOTALL)
        lines = [one for one in "".join(parts).splitlines() if one and not one.startswith("#")]
        assert 0 < len(lines) <= most, name


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(LINES) - set(KILLED) - {"own_objective"}))
def test_a_journey_ends(name: str, tmp_path: Path) -> None:
    if name == "llama_int4":
        pytest.importorskip("transformers")
    assert "bytes" in end(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KILLED))
def test_a_killed_journey_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    if name == "bert_in_trainer":
        pytest.importorskip("transformers")
    there, made = KILLED[name]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    end(name, whole)
    with start(name, killed) as journey:
        journey.wait_for((killed / there).exists)
        journey.kill()
    assert not (killed / made).exists()
    end(name, killed)
    assert (killed / made).read_bytes() == (whole / made).read_bytes()


@pytest.mark.slow
def test_a_killed_search_is_looked_at_and_ends_as_one_that_was_not(tmp_path: Path) -> None:
    def trials(folder: Path) -> list[tuple[object, ...]]:
        lines = (folder / "search-run" / "journal.jsonl").read_text().splitlines()[1:]
        found = [Trial.from_json(json.loads(one)) for one in lines]
        return [
            (one.stage, one.level, one.measurement and one.measurement.metric) for one in found
        ]

    def trials_done() -> bool:
        journal = tmp_path / "killed" / "search-run" / "journal.jsonl"
        return journal.exists() and len(journal.read_text().splitlines()) > 3

    end("own_objective", tmp_path / "whole")
    page = tmp_path / "now.html"
    with start("own_objective", tmp_path / "killed") as journey:
        journey.wait_for(trials_done)
        journey.signal(signal.SIGSTOP)  # so that it does not end before it is looked at
        run(tmp_path, "nncfx", "status", "killed/search-run", "--html", page)
        journey.kill()
    assert "Not ended: running" in page.read_text()
    assert "balanced_accuracy" in page.read_text()
    end("own_objective", tmp_path / "killed")
    assert trials(tmp_path / "killed") == trials(tmp_path / "whole")

"""A file that is not ours is left as it is, and told; one that is ours is fixed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import nncfx
from nncfx import hago
from nncfx.errors import SearchError, StorageError
from nncfx.hago.search.log import TrialRecord, append_record
from nncfx.lc import DC
from nncfx.objectives import Minimize, footprint
from nncfx.schemes import Prune
from nncfx.search import CandidateStudy, Measurement, Study

# what a user may have at hand; most without an end of line, as json.dump and pickles leave them
FILES = {
    "notes": b'{"todo": ["water the plants"]}',
    "indented": b'{\n "todo": 1\n}',
    "list": b"[1, 2, 3]",
    "text": b"my diary",
    "lines": b'{"step": 1}\n{"step": 2}\n',
    "lines torn": b'{"step": 1}\n{"st',
    "no JSON": b"a,b\n1,2\n",
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 100_000,
    "deep line": b"[" * 100_000 + b"]" * 100_000 + b"\n",
    "bytes": bytes(range(256)),
    "blank": b"\n",
    "a space": b" ",
    "similar": b'{"format": "nncfx-studies"}',
    "similar line": b'{"format": "nncfx.evidence", "version": 1}\n',
    "similar result": b'{"result": {"loss": 1}}',
}
STRATEGY = hago.Strategy(1, hago.Topology((False, True), (True, False)), (8,), (1.0,))


def a_study(path: Path) -> None:
    with Study(path, {}) as study:
        study.run("accuracy", 0.5, lambda level: Measurement(metric=1 - level, objective=level))


def a_bound_study(path: Path) -> None:
    with Study(path, {}) as study:
        study.bind({"seed": 0})


def a_study_of_candidates(path: Path) -> None:
    with CandidateStudy(path, {}) as study:
        study.run({"x": 1.0}, ["y"], lambda _: {"y": 1.0})


def a_record(path: Path) -> None:
    append_record(path, TrialRecord(STRATEGY, 0.5, 0.5, {}))


def a_search_of_bits(path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten()).eval()
    images = torch.randn(4, 3, 4, 4)
    graph = hago.prepare_graph(model, images[:1])
    data = [(images, model(images).argmax(1))]
    settings = hago.QuantizeSettings(most_trials=1, thresholds="max_range")
    hago.search_quantize_strategy(
        graph, hago.create_sample_hardware(), data, tuner="random", log=path, settings=settings
    )


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
@pytest.mark.parametrize(
    "write", [a_study, a_bound_study, a_study_of_candidates, a_record, a_search_of_bits]
)
def test_a_file_that_is_not_ours_is_refused_and_left_alone(
    tmp_path: Path, write: Callable[[Path], None], content: bytes
) -> None:
    path = tmp_path / "notes.json"
    path.write_bytes(content)
    with pytest.raises((SearchError, StorageError), match=r"notes\.json"):
        write(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "write", [a_study, a_bound_study, a_study_of_candidates, a_record, a_search_of_bits]
)
def test_a_file_of_ours_is_fixed_wherever_it_was_torn(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    whole = tmp_path / "whole"
    write(whole)
    lines = whole.read_bytes().splitlines(keepends=True)
    for size in range(len(lines[0]) + 1):
        torn = tmp_path / "torn"
        torn.write_bytes(lines[0][:size])
        if write is a_search_of_bits and size % 40:
            continue  # a second each
        write(torn)
        assert torn.read_bytes().count(b"\n") in (len(lines), len(lines) + 1)
        assert torn.read_bytes().startswith(lines[0])


def test_an_empty_file_is_anybodys(tmp_path: Path) -> None:
    for number, write in enumerate((a_study, a_record)):
        path = tmp_path / str(number)
        path.write_bytes(b"")
        write(path)
        assert path.stat().st_size


def test_a_deep_line_of_a_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    a_study(path)
    with path.open("ab") as file:
        file.write(b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"\n")
    with pytest.raises(SearchError, match=r"line 3 is not JSON .*deep"):
        Study(path, {})


def test_a_deep_line_of_a_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    a_record(path)
    with path.open("ab") as file:
        file.write(b'{"version":' * 5000 + b"1" + b"}" * 5000 + b"\n")
    with pytest.raises(StorageError, match=r"Line 2 of .*deep"):
        hago.read_log(path)


def test_a_disk_that_fills_leaves_a_journal_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"

    def measure(level: float) -> Measurement:
        return Measurement(metric=1 - level, objective=level)

    real, room = os.write, [10**6]

    def write(handle: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        taken = real(handle, data[: room[0]])
        room[0] -= taken
        return taken

    monkeypatch.setattr("os.write", write)
    with Study(path, {}) as study:
        study.run("accuracy", 0.5, measure)
        before = path.read_bytes()
        room[0] = 20
        with pytest.raises(SearchError, match="No space left on device"):
            study.run("accuracy", 0.25, measure)
        assert path.read_bytes() == before
        room[0] = 10**6
        study.run("accuracy", 0.25, measure)
    with Study(path, {}) as study:
        assert [trial.level for trial in study.trials] == [0.5, 0.25]


def test_an_evidence_json_that_is_none_stops_a_compressor_before_it_begins(tmp_path: Path) -> None:
    file = tmp_path / "evidence.json"
    file.write_text('{"verdict": "guilty"}')
    model, batches = nn.Linear(4, 2), [(torch.zeros(8, 4), torch.zeros(8, dtype=torch.long))]
    compressor = nncfx.Compressor(
        model=model,
        objective=Minimize(footprint),
        scheme=Prune(),
        optimizer=DC(),
        eps=0.1,
        trainloader=batches,
        valloader=batches,
        criterion=nn.functional.cross_entropy,
        folder=tmp_path,
        runtime="torch",
    )
    with pytest.raises(StorageError, match=r"evidence\.json' is not the evidence"):
        compressor.run()
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [
        ("evidence.json", '{"verdict": "guilty"}')
    ]

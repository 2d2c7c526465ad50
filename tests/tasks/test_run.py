"""A run writes what it promises, goes on after a stop, and tells how far it is."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import nncfx
from nncfx.errors import ArgumentError, MachineError, NNCFXError, SearchError, StorageError
from nncfx.evidence.evidence import Evidence
from nncfx.tasks import read_task, resume_task, run_status, run_task
from nncfx.tasks.run import ended_result, held
from nncfx.tasks.unfinished import evidence_so_far, write_page

Write = Callable[..., Path]
PRUNE = {
    "algorithm": "filter_pruning",
    "params": {
        "schedule": "baseline", "pruning_target": 0.5, "num_init_steps": 0,
        "prune_first_conv": True,
    },
}  # fmt: skip


def test_a_search_is_run_judged_and_reported(
    write: Write, search: dict[str, Any], tmp_path: Path
) -> None:
    task = read_task(write(search=search))
    result = run_task(task, tmp_path / "out")
    assert result.facts["compressed"]["macs"] < result.facts["dense"]["macs"]
    read = nncfx.load(tmp_path / "out" / "model.nncfx", task.model())[1]
    x = task.example_inputs
    assert torch.equal(read(x), result.model(x))
    assert result.evidence.files == {"compressed model": str(tmp_path / "out" / "model.nncfx")}
    assert result.evidence.file_accuracy == result.evidence.compressed.accuracy
    status = run_status(tmp_path / "out")
    assert (status.state, status.kind, status.at_most) == ("ended", "search", 4)
    assert status.best.metric >= status.threshold
    assert evidence_so_far(tmp_path / "out") == Evidence.read(tmp_path / "out" / "evidence.json")


@pytest.mark.slow
def test_an_unfinished_search_has_a_status_and_a_report(out: Path) -> None:
    lines = (out / "journal.jsonl").read_text().splitlines(keepends=True)
    (out / "journal.jsonl").write_text("".join(lines[:3]) + '{"torn')
    (out / "result.json").unlink()
    (out / "evidence.json").unlink()
    status = run_status(out)
    assert (status.state, status.done) == ("stopped", 1)
    assert status.seconds_left == pytest.approx(3 * json.loads(lines[2])["seconds"])
    found = evidence_so_far(out)
    assert len(found.studies[0].samples) == 2
    assert found.dense.macs == 9 * 8 * 36 + 8 * 9 * 8 * 16 + 16
    assert "1 of at most 4 trials" in found.state
    resume_task(out)
    again = (out / "journal.jsonl").read_text().splitlines(keepends=True)
    assert again[:3] == lines[:3]
    assert run_status(out).state == "ended"


def test_the_page_of_an_unfinished_space_has_numbers_as_persons_write_them(
    write: Write, search: dict[str, Any], tmp_path: Path
) -> None:
    out, page = tmp_path / "out", tmp_path / "page.html"
    space = search | {
        "schemes": [{"name": "Prune", "level": [0.1, 0.8]}],
        "objective": "footprint",
    }
    run_task(read_task(write(search=space)), out)
    (out / "result.json").unlink()
    (out / "evidence.json").unlink()
    text = write_page(out, page).read_text(encoding="utf-8")
    for head in ("Prune level", "accuracy", "footprint (bytes)", "seconds", "outcome"):
        assert f">{head}</th>" in text
    assert "standard_error" not in text
    assert not re.search(r"<td[^>]*>[0-9.]+e[+-]", text)  # no exponents
    assert re.search(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2} UTC", text)


def test_a_search_improves_an_objective_of_ones_own(
    write: Write, search: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "from nncfx.objectives import Minimize\n"
        "def channels(model): return model[0].out_channels\n"
        "objective = Minimize(channels, unit='maps')\n"
    )
    task = read_task(write(search=search | {"objective": "mine.py:objective"}))
    result = run_task(task, tmp_path / "out")
    study = result.evidence.studies[0]
    assert (study.objective_name, study.dense_objective) == ("channels", 8)
    assert study.chosen_objective == result.model[0].out_channels  # type: ignore[index,union-attr]
    assert run_status(tmp_path / "out").unit == "maps"
    (tmp_path / "out" / "evidence.json").unlink()
    (tmp_path / "out" / "result.json").unlink()
    so_far = evidence_so_far(tmp_path / "out")
    assert (so_far.title, so_far.studies[0].objective_unit) == (result.evidence.title, "maps")
    assert so_far.title == "task"  # of task.json


def test_a_run_that_fails_says_why_until_it_goes_on(
    write: Write, search: dict[str, Any], tmp_path: Path
) -> None:
    out, page = tmp_path / "out", tmp_path / "page.html"
    with pytest.raises(NNCFXError, match="weights of the moon"):
        run_task(read_task(write(search=search, data="net.py:broken")), out)
    status = run_status(out)
    assert (status.state, status.kind, status.done) == ("failed", "search", 0)
    assert "weights of the moon" in status.error
    assert ended_result(out) is None
    write_page(out, page)
    assert "weights of the moon" in page.read_text()
    write(search=search)  # fixed
    result = resume_task(out)
    assert (run_status(out).state, run_status(out).error) == ("ended", "")
    ended = ended_result(out)
    assert ended.evidence == result.evidence
    assert (ended.files, ended.facts) == (result.files, json.loads(json.dumps(result.facts)))
    assert ended.is_inside


def test_a_run_that_ended_stays_so_where_another_config_is_refused(
    write: Write, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run_task(read_task(write(compression=PRUNE, train={"epochs": 1})), out)
    before = {one.name: one.read_bytes() for one in out.iterdir()}
    changed = write(compression=PRUNE, train={"epochs": 2})
    with pytest.raises(StorageError, match="belongs to another training"):
        run_task(read_task(changed), out)
    assert {one.name: one.read_bytes() for one in out.iterdir()} == before
    assert run_status(out).state == "ended"


def test_a_page_of_a_run_that_has_measured_nothing_says_so(write: Write, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    config = str(write(compression=PRUNE))
    (out / "run.json").write_text(json.dumps({"format": "nncfx-run", "config": config}))
    assert run_status(out).state == "stopped"
    write_page(out, tmp_path / "page.html")
    assert "nothing measured yet" in (tmp_path / "page.html").read_text()


def test_a_status_names_trials_that_are_above_the_budget_by_luck(out: Path) -> None:
    journal = out / "journal.jsonl"
    header, dense, *trials = map(json.loads, journal.read_text().splitlines())
    threshold = header["search"]["threshold"]
    for number, one in enumerate(trials):
        # a hundredth above it, and two thirds of that is the standard error of the second
        one["metric"], one["standard_error"] = threshold + (-0.01, 0.01)[number > 0], 0.0067
    lines = (json.dumps(one) + "\n" for one in (header, dense, *trials[:2]))
    journal.write_text("".join(lines))
    found = run_status(out)
    assert (found.done, found.best, found.unsure, found.stages) == (2, None, 1, 2)


@pytest.mark.slow
def test_training_prunes_quantizes_and_exports(write: Write, tmp_path: Path) -> None:
    # 7 bits: without VNNI OpenVINO adds products of 8 wrongly
    quantized = {"algorithm": "quantization", "target": "openvino", "overflow_fix": "enable"}
    compression = [PRUNE, quantized]
    train = {"epochs": 2, "lr": 0.001}
    path = write(compression=compression, train=train, export={"benchmark": True})
    said: list[str] = []
    result = run_task(read_task(path), tmp_path / "out", say=said.append)
    assert result.facts["compressed"]["parameters"] < 0.6 * result.facts["dense"]["parameters"]
    plain = nncfx.load(tmp_path / "out" / "model.nncfx", read_task(path).model())[1]
    sizes = [one.numel() for one in plain.parameters()]
    assert result.facts["compressed"]["parameters"] == sum(sizes)
    rest = sum(one.numel() for one in plain.parameters() if one.ndim < 2)
    weights = sum(sizes) - rest
    # a byte for each weight but rounded zeros, four for each bias
    assert 0.8 * weights < result.facts["compressed"]["footprint_bytes"] - 4 * rest <= weights
    assert (tmp_path / "out" / "model.onnx").stat().st_size == result.facts["onnx_bytes"]
    torch_metric = result.facts["compressed"]["accuracy"]
    assert result.facts["exported_metric"] == pytest.approx(torch_metric, abs=0.05)
    assert result.facts["file_data"] == "validation"
    exported = Evidence.read(tmp_path / "out" / "evidence.json").exported
    assert exported.bytes == result.facts["onnx_bytes"]
    assert exported.metric == result.facts["exported_metric"]
    assert "The exported file" in (tmp_path / "out" / "report.html").read_text()
    status = run_status(tmp_path / "out")
    assert (status.kind, status.done, status.at_most) == ("training", 16, 16)
    assert any(one.startswith("step 8 of 16") for one in said)
    assert "exporting for openvino" in said  # as it is quantized


def test_a_metric_that_is_no_number_ends_a_run_before_its_training(
    write: Write, tmp_path: Path
) -> None:
    path = write(compression=PRUNE, train={"epochs": 1}, metric="net.py:not_a_number")
    with pytest.raises(ArgumentError, match="'not_a_number' of the dense model is nan"):
        run_task(read_task(path), tmp_path / "out")
    assert not (tmp_path / "out" / "report.html").exists()
    assert run_status(tmp_path / "out").done == 0


def test_a_criterion_of_another_signature_is_told_before_the_training(
    write: Write, tmp_path: Path
) -> None:
    path = write(compression=PRUNE, train={"epochs": 1, "criterion": "net.py:of_one"})
    with pytest.raises(ArgumentError, match="criterion does not take the outputs"):
        run_task(read_task(path), tmp_path / "out")


def test_a_schedule_without_an_end_is_told(write: Write, tmp_path: Path) -> None:
    params = {"schedule": "polynomial", "sparsity_target": 0.8, "sparsity_target_epoch": 50}
    path = write(
        compression={"algorithm": "magnitude_sparsity", "params": params}, train={"epochs": 1}
    )
    said: list[str] = []
    with pytest.warns(nncfx.controllers.TrainingLoopWarning):
        run_task(read_task(path), tmp_path / "out", say=said.append)
    assert any("has not come to its end" in one for one in said)


def test_a_folder_belongs_to_one_run(
    write: Write, search: dict[str, Any], out: Path, tmp_path: Path
) -> None:
    with pytest.raises(ArgumentError, match="holds a run of"):
        run_task(read_task(write("other.json", search=search)), out)
    with held(out):
        assert run_status(out).state == "running"
        with pytest.raises(MachineError, match="in use by another run"):
            resume_task(out)
    with pytest.raises(StorageError, match="holds no run"):
        run_status(tmp_path)
    with pytest.raises(StorageError, match="holds no run"):
        resume_task(tmp_path)


@pytest.mark.parametrize("name", ["model.nncfx", "report.html", "mine.onnx"])
def test_files_that_are_of_no_run_are_left_alone(write: Write, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "notes.txt").write_text("in nobody's way")
    (folder / name).write_text("mine")
    with pytest.raises(
        ArgumentError, match=f"{name}' does not belong to a run of .*another --folder"
    ):
        run_task(read_task(write(export={"file": "mine.onnx"})), folder)
    assert (folder / name).read_text() == "mine"
    assert not (folder / "run.json").exists()


@pytest.mark.parametrize(
    "header",
    ["{}", '{"format": "nncfx-study", "header": [], "search": {}}',
     '{"format": "nncfx-study", "header": {}, "search": [1]}',
     '{"format": "nncfx-study", "header": {}, "search": {"at_least": {"metric": 1}}}'],
)  # fmt: skip
def test_a_journal_that_is_none_of_a_search_has_no_status(tmp_path: Path, header: str) -> None:
    (tmp_path / "journal.jsonl").write_text(f"{header}\n", encoding="utf-8")
    with pytest.raises(StorageError, match="is not the journal of a search"):
        run_status(tmp_path)


def test_a_training_has_no_report_before_its_end(write: Write, tmp_path: Path) -> None:
    task = read_task(write(compression=PRUNE, train={"epochs": 0}))
    run_task(task, tmp_path / "out")
    (tmp_path / "out" / "result.json").unlink()
    with pytest.raises(SearchError, match="holds a training"):
        evidence_so_far(tmp_path / "out")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ({"speed_up": None}, "its speed_up is None"),
        ({"dense_onnx_bytes": "12"}, "its dense_onnx_bytes is '12'"),
        ({"onnx_bytes": 0}, "its onnx_bytes is 0"),
        ({"latency_ms": {"dense": 1.0}}, "its latency_ms.exported is None"),
        ({"latency_ms": 1.0}, "its latency_ms.dense is None"),
    ],
)
def test_a_result_of_which_nothing_can_be_told_is_damaged(
    tmp_path: Path, damage: dict[str, object], told: str
) -> None:
    facts = {"onnx_bytes": 6, "dense_onnx_bytes": 12, "speed_up": 2.0, "runtime": "onnxruntime"}
    sound = {"files": {}, "latency_ms": {"dense": 2.0, "exported": 1.0}, **facts}
    (tmp_path / "result.json").write_text(json.dumps(sound))
    ended = ended_result(tmp_path)
    assert ended.facts["speed_up"] == 2
    (tmp_path / "result.json").write_text(json.dumps(sound | damage))
    with pytest.raises(StorageError, match=f"is damaged: {told}"):
        ended_result(tmp_path)

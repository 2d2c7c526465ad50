"""Evidence is plain data that survives JSON and refuses what it does not understand."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import report_evidence
from nncfx.errors import ArgumentError, StorageError
from nncfx.evidence.evidence import Curve, Evidence, LayerRow, ModelFacts, Sample, StudyEvidence

numbers = st.floats(allow_nan=False)
texts = st.text(max_size=12)


def optional(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


facts = st.builds(ModelFacts, latency_interval_ms=optional(st.tuples(numbers, numbers)))
samples = st.builds(
    Sample,
    stage=st.sampled_from(["dense", "accuracy", "objective"]),
    accuracy=optional(numbers),
    objective=optional(numbers),
)
curves = st.lists(st.tuples(numbers, numbers, numbers, numbers), max_size=3).map(
    lambda rows: Curve(
        levels=tuple(r[0] for r in rows),
        mean=tuple(r[1] for r in rows),
        lower=tuple(r[2] for r in rows),
        upper=tuple(r[3] for r in rows),
    )
)
studies = st.builds(
    StudyEvidence,
    samples=st.lists(samples, max_size=3).map(tuple),
    comparison=st.lists(samples, max_size=2).map(tuple),
    accuracy_curve=optional(curves),
    objective_curve=optional(curves),
    threshold=numbers,
)
evidences = st.builds(
    Evidence,
    title=texts,
    machine=st.dictionaries(texts, texts, max_size=2),
    versions=st.dictionaries(texts, texts, max_size=2),
    files=st.dictionaries(texts, texts, max_size=2),
    dense=facts,
    compressed=facts,
    studies=st.lists(studies, max_size=2).map(tuple),
    layers=st.lists(st.builds(LayerRow), max_size=2).map(tuple),
    notes=st.lists(texts, max_size=2).map(tuple),
)


def body() -> dict[str, Any]:
    return dict(json.loads(report_evidence.EVIDENCE.to_json()))


@given(evidences)
def test_reading_what_was_written_gives_the_same_evidence(evidence: Evidence) -> None:
    # repr, because nan is not equal to itself
    assert repr(Evidence.from_json(evidence.to_json())) == repr(evidence)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "$.format is 'other'; evidence has 'nncfx-evidence'"),
        ({"version": 2}, "$.version is 2; this nncfx reads version 1."),
        ({"titel": "x"}, "$.titel is not a field of Evidence"),
        ({"machine": {"cores": 2}}, "$.machine.cores is 2; a string is expected here."),
    ],
)
def test_a_fault_is_named_with_its_path(change: dict[str, object], message: str) -> None:
    with pytest.raises(StorageError, match=re.escape(message)):
        Evidence.from_json(json.dumps(body() | change))


def test_an_unknown_stage_is_refused() -> None:
    with pytest.raises(ArgumentError, match="The stage of sample 1 is 'third'"):
        report_evidence.sample(1, 0.5, 0.9, stage="third")


def test_a_ragged_curve_is_refused() -> None:
    with pytest.raises(ArgumentError, match=re.escape("lengths [2, 1, 1, 1]")):
        Curve(levels=(0.0, 1.0), mean=(0.0,), lower=(0.0,), upper=(0.0,))


def test_a_contradiction_inside_a_file_is_a_storage_error() -> None:
    changed = body()
    changed["studies"][0]["accuracy_curve"]["mean"].pop()
    with pytest.raises(StorageError, match="contradicts itself"):
        Evidence.from_json(json.dumps(changed))


def test_a_file_written_can_be_read(tmp_path: Path) -> None:
    path = report_evidence.EVIDENCE.write(tmp_path / "new" / "evidence.json")
    assert Evidence.read(path) == report_evidence.EVIDENCE
    assert [p.name for p in path.parent.iterdir()] == ["evidence.json"]


def test_a_binary_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(StorageError, match="is not UTF-8 text at byte 0"):
        Evidence.read(tmp_path / "x")


def test_a_metric_of_0_is_above_a_threshold_below_0() -> None:
    """Of negative errors 0 is the best, and no missing number."""
    sample = dataclasses.replace(report_evidence.sample(1, 0.5, 0.0), standard_error=0.2)
    study = dataclasses.replace(
        report_evidence.STUDY, threshold=-0.1, caution=2.0, samples=(sample,), chosen_level=0.0
    )
    assert "level 0.5 measured within the budget" in study.why_unchanged

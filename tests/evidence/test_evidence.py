"""Evidence is plain data that survives JSON and refuses what it does not understand."""

import dataclasses
import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.errors import ArgumentError, StorageError
from nncfx.evidence.evidence import (
    Curve,
    Evidence,
    LayerRow,
    ModelFacts,
    Sample,
    StudyEvidence,
)

numbers = st.floats(allow_nan=False)
texts = st.text(max_size=12)


def optional(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


facts = st.builds(
    ModelFacts,
    latency_interval_ms=optional(st.tuples(numbers, numbers)),
)
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
    ),
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


def small_facts() -> ModelFacts:
    return ModelFacts(
        accuracy=0.9,
        parameters=10,
        nonzero=4,
        macs=100,
        footprint_bytes=16,
        file_bytes=None,
        latency_ms=1.5,
        latency_interval_ms=(1.25, 1.75),
        throughput=None,
    )


def small_evidence() -> Evidence:
    return Evidence(
        title="small",
        created="2026-01-02T03:04:05+00:00",
        metric="accuracy",
        runtime="onnxruntime",
        machine={"cores": "2"},
        versions={"python": "3.11"},
        dense=small_facts(),
        compressed=small_facts(),
        studies=(),
        layers=(),
        max_thinning_error=1e-7,
        files={},
        notes=(),
    )


def body() -> dict[str, object]:
    return dict(json.loads(small_evidence().to_json()))


@given(evidences)
def test_reading_what_was_written_gives_the_same_evidence(evidence: Evidence) -> None:
    # repr, because nan is not equal to itself
    assert repr(Evidence.from_json(evidence.to_json())) == repr(evidence)


def test_a_number_that_is_not_finite_survives_in_strict_json() -> None:
    facts = dataclasses.replace(small_facts(), accuracy=math.nan, latency_ms=math.inf)
    text = dataclasses.replace(small_evidence(), compressed=facts).to_json()

    def refuse(name: str) -> float:
        raise AssertionError(name)

    assert json.loads(text, parse_constant=refuse)["compressed"]["accuracy"] == "nan"
    read = Evidence.from_json(text).compressed
    assert math.isnan(read.accuracy)
    assert read.latency_ms == math.inf


def test_a_whole_number_is_read_as_the_float_it_stands_for() -> None:
    text = small_evidence().to_json().replace('"latency_ms": 1.5', '"latency_ms": 2')
    assert isinstance(Evidence.from_json(text).dense.latency_ms, float)


def test_a_field_with_a_default_may_be_missing() -> None:
    study = StudyEvidence(
        name="throughput",
        scheme="FilterPrune",
        recovery="L-C",
        objective_name="throughput",
        objective_unit="images/s",
        maximize=True,
        threshold=0.9,
        dense_accuracy=0.92,
        dense_objective=1000.0,
        samples=(),
        accuracy_curve=None,
        objective_curve=None,
        level_accuracy=0.5,
        chosen_level=0.5,
    )
    evidence = dataclasses.replace(small_evidence(), studies=(study,))
    raw = json.loads(evidence.to_json())
    del raw["studies"][0]["comparison"]
    assert Evidence.from_json(json.dumps(raw)) == evidence


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "$.format is 'other'; evidence has 'nncfx-evidence'"),
        ({"version": 2}, "$.version is 2; this nncfx reads version 1."),
        ({"titel": "x"}, "$.titel is not a field of Evidence"),
        ({"titel": "x"}, "Did you mean 'title'?"),
        ({"title": 3}, "$.title is 3; a string is expected here."),
        ({"notes": "one"}, "$.notes is 'one'; an array is expected here."),
        ({"notes": [1]}, "$.notes[0] is 1; a string is expected here."),
        ({"machine": {"cores": 2}}, "$.machine.cores is 2; a string is expected here."),
        ({"dense": None}, "$.dense is None; an object is expected here."),
        ({"max_thinning_error": "1"}, "$.max_thinning_error is '1'; a number is expected here."),
        ({"max_thinning_error": True}, "$.max_thinning_error is True; a number is expected"),
    ],
)
def test_a_fault_is_named_with_its_path(change: dict[str, object], message: str) -> None:
    with pytest.raises(StorageError, match=re.escape(message)):
        Evidence.from_json(json.dumps(body() | change))


def test_a_missing_field_is_named() -> None:
    raw = body()
    del raw["runtime"]
    with pytest.raises(StorageError, match=re.escape("$.runtime is missing; Evidence cannot")):
        Evidence.from_json(json.dumps(raw))


def test_an_interval_of_three_ends_is_refused() -> None:
    raw = json.loads(small_evidence().to_json())
    raw["dense"]["latency_interval_ms"] = [1, 2, 3]
    with pytest.raises(StorageError, match=re.escape("$.dense.latency_interval_ms has 3 items")):
        Evidence.from_json(json.dumps(raw))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000])
def test_text_that_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(StorageError):
        Evidence.from_json(text)


def test_an_unknown_stage_is_refused() -> None:
    with pytest.raises(ArgumentError, match="The stage of sample 1 is 'third'"):
        Sample(
            number=1,
            stage="third",
            level=0.5,
            accuracy=None,
            objective=None,
            state="done",
            seconds=1.0,
        )


def test_a_ragged_curve_is_refused() -> None:
    with pytest.raises(ArgumentError, match=re.escape("lengths [2, 1, 1, 1]")):
        Curve(levels=(0.0, 1.0), mean=(0.0,), lower=(0.0,), upper=(0.0,))


def test_a_contradiction_inside_a_file_is_a_storage_error() -> None:
    curve = {"levels": [0.0], "mean": [], "lower": [], "upper": []}
    study = {
        **dict.fromkeys(("name", "scheme", "recovery", "objective_name", "objective_unit"), ""),
        **dict.fromkeys(("threshold", "dense_accuracy", "dense_objective"), 0.5),
        **dict.fromkeys(("level_accuracy", "chosen_level"), 0.5),
        "maximize": True,
        "samples": [],
        "accuracy_curve": curve,
        "objective_curve": None,
    }
    with pytest.raises(StorageError, match="contradicts itself"):
        Evidence.from_json(json.dumps(body() | {"studies": [study]}))


def test_a_file_written_can_be_read(tmp_path: Path) -> None:
    path = small_evidence().write(tmp_path / "new" / "evidence.json")
    assert Evidence.read(path) == small_evidence()
    assert [p.name for p in path.parent.iterdir()] == ["evidence.json"]


def test_a_missing_file_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read: No such file or directory"):
        Evidence.read(tmp_path / "none.json")


def test_a_binary_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(StorageError, match="is not UTF-8 text at byte 0"):
        Evidence.read(tmp_path / "x")


def test_a_file_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        small_evidence().write(tmp_path / "file" / "evidence.json")


def test_a_metric_of_0_is_above_a_threshold_below_0() -> None:
    """Of negative errors 0 is the best, and no missing number."""
    sample = Sample(
        number=1,
        stage="accuracy",
        level=0.5,
        accuracy=0.0,
        objective=1.0,
        state="done",
        seconds=1.0,
        error=None,
        standard_error=0.2,
    )
    study = StudyEvidence(
        name="MACs",
        scheme="FilterPrune",
        recovery="L-C",
        objective_name="MACs",
        objective_unit="",
        maximize=False,
        threshold=-0.1,
        caution=2.0,
        dense_accuracy=0.0,
        dense_objective=2.0,
        samples=(sample,),
        accuracy_curve=None,
        objective_curve=None,
        level_accuracy=0.0,
        chosen_level=0.0,
    )
    assert "level 0.5 measured within the budget" in study.why_unchanged

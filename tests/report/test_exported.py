"""The table of the exported file."""

import dataclasses

import report_evidence as given
from nncfx.evidence import Evidence, ExportedFile
from nncfx.report.claims import warning
from nncfx.report.exported import exported_table
from nncfx.report.page import render_report

FILE = ExportedFile(
    runtime="onnxruntime",
    bytes=1_000,
    dense_bytes=4_000,
    metric=0.75,
    dense_metric=0.8,
    latency_ms=2.0,
    dense_latency_ms=4.0,
    batch=64,
    threads=1,
    speed_up=1.5,
    is_clear=True,
    is_inside=True,
)


def cells(evidence: Evidence, **changes: object) -> list[tuple[str, str, str]]:
    file = dataclasses.replace(FILE, **changes)  # type: ignore[arg-type]
    rows = exported_table(dataclasses.replace(evidence, exported=file))
    return [(one.dense, one.compressed, one.change) for one in rows]


def test_metric_bytes_and_time_stand_beside_the_dense_file() -> None:
    metric, size, time = cells(given.EVIDENCE)
    assert metric[:2] == ("80.00 %", "75.00 %")
    assert size == ("4.00 kB", "1.00 kB", "4.00\N{MULTIPLICATION SIGN} smaller")
    # turn by turn, not the ratio of both medians, which is 2
    assert time == ("4.00 ms", "2.00 ms", "1.50\N{MULTIPLICATION SIGN} faster")


def test_a_latency_names_its_call_where_that_is_known() -> None:
    def name(file: ExportedFile) -> str:
        return exported_table(dataclasses.replace(given.EVIDENCE, exported=file))[2].name

    assert name(FILE) == "Latency, median, onnxruntime, batch 64, 1 thread; change turn by turn"
    before = dataclasses.replace(FILE, batch=None, threads=None)
    assert name(before) == "Latency, median, onnxruntime; change turn by turn"


def test_a_slower_file_and_one_within_chance_are_told() -> None:
    assert cells(given.EVIDENCE, speed_up=0.5)[2][2] == "2.00\N{MULTIPLICATION SIGN} slower"
    assert cells(given.EVIDENCE, is_clear=False)[2][2] == "no clear change"


def test_what_was_not_measured_has_no_row() -> None:
    assert exported_table(given.EVIDENCE) == ()
    only = cells(given.EVIDENCE, metric=None, latency_ms=None, dense_bytes=None)
    assert only == [("\N{EN DASH}", "1.00 kB", "\N{EN DASH}")]


def test_a_file_outside_of_the_budget_is_told_before_all_else() -> None:
    kept = dataclasses.replace(given.EVIDENCE, exported=FILE, judgement=None)
    lost = dataclasses.replace(kept, exported=dataclasses.replace(FILE, is_inside=False))
    assert (warning(kept), "after its export" in warning(lost)) == ("", True)
    assert warning(lost) in render_report(lost)
    assert Evidence.from_json(lost.to_json()) == lost

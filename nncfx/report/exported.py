"""The table that compares the exported file with the dense model's."""

from collections.abc import Iterator
from functools import partial

from nncfx.evidence.evidence import Evidence
from nncfx.evidence.exported import ExportedFile
from nncfx.report.format import (
    bytes_text,
    metric_change_text,
    metric_text,
    milliseconds_text,
    titled,
)
from nncfx.report.tables import ABSENT, SummaryRow, change_text, summary_row
from nncfx.runtimes import call_words


def exported_table(evidence: Evidence) -> tuple[SummaryRow, ...]:
    """Return metric, bytes and time of the exported file; empty if none was exported."""
    file = evidence.exported
    return () if file is None else tuple(_rows(file, evidence.metric))


def _rows(file: ExportedFile, metric: str) -> Iterator[SummaryRow]:
    if file.metric is not None:
        before, after = file.dense_metric, file.metric
        change = ABSENT if before is None else metric_change_text(after - before, metric)
        text = partial(metric_text, metric=metric)
        yield summary_row(titled(metric), (before, after), text, change)
    sizes = file.dense_bytes, file.bytes
    smaller = change_text(*sizes, ("smaller", "larger"))
    yield summary_row("ONNX file", sizes, bytes_text, smaller)
    if file.latency_ms is not None and file.speed_up is not None:
        change = change_text(file.speed_up, 1.0, ("faster", "slower"))
        # results of earlier versions do not describe the call
        call = "" if file.batch is None else f", {call_words(file.batch, file.threads)}"
        yield summary_row(
            f"Latency, median, {file.runtime}{call}; change turn by turn",
            (file.dense_latency_ms, file.latency_ms),
            milliseconds_text,
            change if file.is_clear else "no clear change",
        )

"""The tables of a report: every cell as text, every bar as a percentage of its column."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from nncfx.evidence.evidence import Evidence, LayerRow, ModelFacts, Sample, StudyEvidence
from nncfx.report.chart import outcome
from nncfx.report.format import (
    bytes_text,
    count_text,
    interval_text,
    level_text,
    metric_change_text,
    metric_text,
    milliseconds_text,
    prefix_text,
    quantity_text,
    ratio_text,
    seconds_text,
    significant_text,
    titled,
)
from nncfx.runtimes import call_words

ABSENT = "\N{EN DASH}"
ENDED = "ended"
"""The `state` in the evidence of a run that has ended."""


@dataclass(frozen=True, kw_only=True)
class SummaryRow:
    """One quantity of the dense and of the compressed model, and how it changed."""

    name: str
    dense: str
    compressed: str
    change: str


@dataclass(frozen=True, kw_only=True)
class TrialCells:
    """One trial as text; `state` is also a class of the style sheet."""

    number: str
    stage: str
    level: str
    metric: str
    direct: str
    objective: str
    seconds: str
    state: str
    error: str


@dataclass(frozen=True, kw_only=True)
class LayerCells:
    """One layer as text; bars are widths in percent of their column."""

    module: str
    kind: str
    kernel: str
    shape_before: str
    shape_after: str
    kept: str
    macs_before: str
    macs_after: str
    macs_ratio: str
    nonzero_before: str
    nonzero_after: str
    time_before: str
    time_after: str
    speedup: str
    bar_before: str
    bar_after: str


ValueT = TypeVar("ValueT")


def summary_row(
    name: str,
    pair: tuple[ValueT | None, ValueT | None],
    text: Callable[[ValueT], str],
    change: str,
) -> SummaryRow:
    """Return the row of a quantity of the dense and the compressed model; a dash if missing."""
    before, after = (ABSENT if one is None else text(one) for one in pair)
    return SummaryRow(name=name, dense=before, compressed=after, change=change)


def summary_table(evidence: Evidence) -> tuple[SummaryRow, ...]:
    """Return the rows of dense against compressed; a dash if nothing was measured."""
    dense, compressed = evidence.dense, evidence.compressed

    def row(
        name: str,
        value: Callable[[ModelFacts], float | None],
        text: Callable[[float], str],
        words: tuple[str, str],
    ) -> SummaryRow:
        pair = value(dense), value(compressed)
        return summary_row(name, pair, text, change_text(*pair, words))

    fewer, smaller, faster = ("fewer", "more"), ("smaller", "larger"), ("faster", "slower")
    rows = (
        *_metric_rows(evidence),
        row("Parameters", lambda m: m.parameters or None, _count, fewer),
        row("Non-zero parameters", lambda m: m.nonzero or None, _count, fewer),
        row("MACs, one example", lambda m: m.macs or None, prefix_text, fewer),
        row("Footprint of non-zeros", lambda m: m.footprint_bytes or None, bytes_text, smaller),
        row(
            "File, dense as safetensors (float32), compressed as .nncfx",
            lambda m: m.file_bytes,
            bytes_text,
            smaller,
        ),
        row("File, both as .nncfx", lambda m: m.packed_bytes, bytes_text, smaller),
        row(
            f"Latency, median, {call_words(evidence.batch, evidence.threads)}",
            lambda m: m.latency_ms,
            milliseconds_text,
            faster,
        ),
        _interval_row(dense, compressed),
        row("Throughput", lambda m: m.throughput, _per_second, ("lower", "higher")),
    )
    return tuple(one for one in rows if {one.dense, one.compressed} != {ABSENT})


def _metric_rows(evidence: Evidence) -> list[SummaryRow]:
    """Return the metric on the data that judge, then on those that chose, if both are known."""
    metric, judgement = evidence.metric, evidence.judgement
    if evidence.state != ENDED:
        kind = "validation"
    elif judgement is None:
        kind = ""
    else:
        kind = "test" if judgement.held_out else f"{judgement.data}, which chose the model too"

    def row(kind: str, before: float, after: float) -> SummaryRow:
        name = titled(metric) + (f", {kind}" if kind else "")
        change = metric_change_text(after - before, metric)
        return summary_row(name, (before, after), partial(metric_text, metric=metric), change)

    rows = [row(kind, evidence.dense.accuracy, evidence.compressed.accuracy)]
    chosen = [
        sample.accuracy
        for study in evidence.studies[-1:]
        for sample in study.samples
        if study.is_chosen(sample) and sample.accuracy is not None
    ]
    if judgement is not None and judgement.held_out and chosen:
        rows.append(row("validation", evidence.studies[0].dense_accuracy, chosen[-1]))
    return rows


def trial_table(study: StudyEvidence, metric: str) -> tuple[TrialCells, ...]:
    """Return the trials of `study` in order of evaluation.

    Trials of a space have the words of their candidate instead of a level. `direct` is the metric
    of direct compression at exactly the same level, if measured; direct compression at other
    levels follows in separate rows.
    """
    direct = {s.level: s for s in study.comparison}
    own = tuple(_trial(study, s, direct.get(s.level), metric) for s in study.samples)
    levels = {s.level for s in study.samples}
    alone = (s for s in study.comparison if s.level not in levels)
    return own + tuple(_direct_trial(study, sample, metric) for sample in alone)


def layer_table(layers: Sequence[LayerRow]) -> tuple[LayerCells, ...]:
    """Return the layers, then their total where there are at least two.

    Source: Condensa (Joseph et al., 2019), Table 3.
    """
    longest = max((_time(row) for row in layers), default=0.0)
    cells = tuple(_layer(row, longest) for row in layers)
    return (*cells, _total(layers)) if len(layers) > 1 else cells


def _trial(study: StudyEvidence, sample: Sample, direct: Sample | None, metric: str) -> TrialCells:
    return TrialCells(
        number=str(sample.number),
        stage=sample.stage,
        level=sample.candidate or level_text(sample.level),
        metric=_metric(sample, metric),
        direct=ABSENT if direct is None else _metric(direct, metric),
        objective=_objective(study, sample),
        seconds=seconds_text(sample.seconds),
        state=outcome(study, sample),
        error="" if sample.is_done else sample.error or sample.state,
    )


def _direct_trial(study: StudyEvidence, sample: Sample, metric: str) -> TrialCells:
    own = _trial(study, sample, sample, metric)
    return replace(own, number="", stage="direct", metric=ABSENT, state="direct", error="")


def _metric(sample: Sample, metric: str) -> str:
    return ABSENT if sample.accuracy is None else metric_text(sample.accuracy, metric)


def _objective(study: StudyEvidence, sample: Sample) -> str:
    """Return the objective without its unit, which is in the header, except for bytes."""
    value, unit = sample.objective, study.objective_unit
    if value is None:
        return ABSENT
    return quantity_text(value, unit if unit == "bytes" else "")


def _time(row: LayerRow) -> float:
    return max(row.time_before_ms or 0.0, row.time_after_ms or 0.0)


def _layer(row: LayerRow, longest: float) -> LayerCells:
    before, after = row.time_before_ms, row.time_after_ms
    is_gone = row.channels_after == 0
    return LayerCells(
        module=row.module,
        kind=row.kind,
        kernel=row.kernel,
        shape_before=f"{row.in_channels_before} \N{RIGHTWARDS ARROW} {row.channels_before}",
        shape_after="removed"
        if is_gone
        else f"{row.in_channels_after} \N{RIGHTWARDS ARROW} {row.channels_after}",
        kept=_share(row.channels_after, row.channels_before),
        macs_before=prefix_text(row.macs_before),
        macs_after=prefix_text(row.macs_after),
        macs_ratio=_quotient(row.macs_before, row.macs_after),
        nonzero_before=count_text(row.nonzero_before),
        nonzero_after=count_text(row.nonzero_after),
        time_before=ABSENT if before is None else significant_text(before),
        time_after=ABSENT if after is None else significant_text(after),
        speedup=_quotient(before, after),
        bar_before=_share(before or 0.0, longest),
        bar_after=_share(after or 0.0, longest),
    )


def _total(layers: Sequence[LayerRow]) -> LayerCells:
    befores = [row.time_before_ms for row in layers if row.time_before_ms is not None]
    afters = [row.time_after_ms for row in layers if row.time_after_ms is not None]
    before, after = sum(befores), sum(afters)
    # a layer timed on one side only would make the sum of the other side look better
    paired = all(
        (row.time_before_ms is None) == (row.time_after_ms is None) or row.channels_after == 0
        for row in layers
    )
    channels = [sum(r.channels_before for r in layers), sum(r.channels_after for r in layers)]
    macs = [sum(r.macs_before for r in layers), sum(r.macs_after for r in layers)]
    return LayerCells(
        module="all layers",
        kind="",
        kernel="",
        shape_before=f"{channels[0]:,}",
        shape_after=f"{channels[1]:,}",
        kept=_share(channels[1], channels[0]),
        macs_before=prefix_text(macs[0]),
        macs_after=prefix_text(macs[1]),
        macs_ratio=_quotient(*macs),
        nonzero_before=count_text(sum(r.nonzero_before for r in layers)),
        nonzero_after=count_text(sum(r.nonzero_after for r in layers)),
        time_before=significant_text(before) if befores else ABSENT,
        time_after=significant_text(after) if afters else ABSENT,
        speedup=_quotient(before, after) if paired else ABSENT,
        bar_before=_share(before, max(before, after)),
        bar_after=_share(after, max(before, after)),
    )


def _interval_row(dense: ModelFacts, compressed: ModelFacts) -> SummaryRow:
    ends = dense.latency_interval_ms, compressed.latency_interval_ms
    if ends[0] is None or ends[1] is None:
        change = ABSENT
    else:
        apart = ends[0][0] > ends[1][1] or ends[1][0] > ends[0][1]
        change = "apart" if apart else "overlap: no clear change"
    return summary_row("Latency, interval of the median", ends, interval_text, change)


def change_text(before: float | None, after: float | None, words: tuple[str, str]) -> str:
    """Return text such as "2.0x fewer"; `words` are for a decrease and for an increase."""
    if before is None or after is None or before < 0 or after < 0:
        return ABSENT
    if before == after:
        return "same"
    if not before or not after:
        return f"all {words[0]}" if before else ABSENT
    fell = after < before
    ratio = ratio_text(before / after if fell else after / before)
    # "1.00 times slower" would claim a difference that is not visible
    return "about the same" if ratio == ratio_text(1.0) else f"{ratio} {words[0 if fell else 1]}"


def _quotient(before: float | None, after: float | None) -> str:
    return ratio_text(before / after) if before and after else ABSENT


def _share(part: float, whole: float) -> str:
    return f"{min(part / whole, 1.0):.1%}" if whole else "0%"


def _count(value: float) -> str:
    return count_text(int(value))


def _per_second(value: float) -> str:
    return prefix_text(value, "examples/s")

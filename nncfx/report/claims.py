"""The claims of a run, as far as its numbers support them."""

from dataclasses import dataclass, replace

from nncfx.evidence.evidence import Evidence, ModelFacts
from nncfx.evidence.judgement import Judgement
from nncfx.report.format import (
    bytes_text,
    interval_text,
    level_text,
    metric_change_text,
    metric_text,
    milliseconds_text,
    prefix_text,
    quantity_text,
    ratio_text,
    significant_text,
)
from nncfx.runtimes import call_words

_TIMES = ("throughput", "latency")
_SIZES = ("footprint", "file size")
"""Objectives covered by the claims of speed and size."""

# The largest relative difference between a thinned and a masked model in fp32.
THINNING_BAR = 1e-5


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim: a number, its meaning, and its evidence.

    `verdict` is "good", "bad", or "open" if the numbers do not decide.
    """

    figure: str
    label: str
    detail: str
    verdict: str


def headline(evidence: Evidence) -> tuple[Claim, ...]:
    """Return the claims of speed, size and the metric, then of a user-defined objective."""
    dense, compressed = evidence.dense, evidence.compressed
    speed = _speed(dense, compressed)
    if dense.latency_ms or dense.throughput:
        call = f"per call: {call_words(evidence.batch, evidence.threads)}"
        speed = replace(speed, detail=f"{speed.detail}; {call}")
    objective = _objective(evidence)
    claims = (speed, _size(dense, compressed), _accuracy(evidence))
    return claims if objective is None else (*claims, objective)


def _objective(evidence: Evidence) -> Claim | None:
    """Return the result of the last search's objective, unless another claim covers it."""
    if not evidence.studies:
        return None
    study = evidence.studies[-1]
    timed = evidence.dense.latency_ms or evidence.dense.throughput
    if study.objective_name in (*(_TIMES if timed else ()), *_SIZES):
        return None
    before, after, unit = study.dense_objective, study.chosen_objective, study.objective_unit
    if after is None:
        return None
    texts = [quantity_text(value, unit) for value in (before, after) if value is not None]
    compared = after if before is None else before
    better = after > compared if study.maximize else after < compared
    aim = "maximized" if study.maximize else "minimized"
    where = study.chosen_words or f"level {level_text(study.chosen_level)}"
    return Claim(
        figure=texts[-1],
        label="objective" if study.objective_name == unit else study.objective_name,
        detail=f"the objective, {aim}: {' to '.join(texts)} at {where}",
        verdict="good" if better else "open" if after == compared else "bad",
    )


def warning(evidence: Evidence) -> str:
    """Return the most important warning: a violated budget, or no compression; else ""."""
    judgement, file = evidence.judgement, evidence.exported
    if judgement is None or judgement.is_inside:
        if file is None or file.is_inside is not False:
            why = evidence.studies[-1].why_unchanged if evidence.studies else ""
            return why and f"Unchanged: {why}"
        return "Outside the budget: the file, after its export."
    return f"Outside the budget: {_judged(judgement, evidence.metric)}."


def checks(evidence: Evidence) -> tuple[Claim, ...]:
    """Return the checks of the result: the masked model and the file, each if checked."""
    found = []
    error = evidence.max_thinning_error
    if error is not None:
        found.append(
            Claim(
                figure=significant_text(error, 2),
                label="Thinned model against masked model",
                detail="largest relative difference of their outputs on the same input; "
                f"at most {THINNING_BAR:.0e} is taken for equal in fp32",
                # written so that NaN is bad
                verdict="good" if error <= THINNING_BAR else "bad",
            )
        )
    if evidence.file_accuracy is not None:
        found.append(_file(evidence, evidence.file_accuracy))
    return tuple(found)


def _file(evidence: Evidence, accuracy: float) -> Claim:
    claimed = evidence.compressed.accuracy
    same = accuracy == claimed
    return Claim(
        figure=metric_text(accuracy, evidence.metric),
        label="File read back",
        detail=f"{evidence.metric} of the model that the written file holds; "
        + ("equal to the one claimed" if same else "claimed is ")
        + ("" if same else metric_text(claimed, evidence.metric)),
        verdict="good" if same else "bad",
    )


def _speed(dense: ModelFacts, compressed: ModelFacts) -> Claim:
    before, after = dense.latency_ms, compressed.latency_ms
    if not before or not after:
        return _throughput(dense, compressed)
    ratio = before / after
    intervals = dense.latency_interval_ms, compressed.latency_interval_ms
    if intervals[0] is None or intervals[1] is None:
        factor = max(ratio, 1 / ratio)
        return Claim(
            figure=ratio_text(factor),
            label="faster" if ratio > 1 else "slower",
            detail=f"latency {milliseconds_text(before)} to {milliseconds_text(after)}, "
            "single figures without an interval",
            verdict="open",
        )
    low, high = intervals[0][0] / intervals[1][1], intervals[0][1] / intervals[1][0]
    if low <= 1 <= high:
        return Claim(
            figure="No clear",
            label="change of latency",
            detail=f"the intervals overlap: dense {interval_text(intervals[0])}, compressed "
            f"{interval_text(intervals[1])}; the ratio of the medians is {ratio_text(ratio)}",
            verdict="open",
        )
    faster = low > 1
    ends = (low, high) if faster else (1 / high, 1 / low)
    return Claim(
        figure=ratio_text(ratio if faster else 1 / ratio),
        label="faster" if faster else "slower",
        detail=f"latency {milliseconds_text(before)} to {milliseconds_text(after)}; "
        f"{ratio_text(ends[0])} to {ratio_text(ends[1])} at the ends of the intervals",
        verdict="good" if faster else "bad",
    )


def _throughput(dense: ModelFacts, compressed: ModelFacts) -> Claim:
    before, after = dense.throughput, compressed.throughput
    if not before or not after:
        return Claim(
            figure="Not timed",
            label="speed",
            detail="no latency or throughput was measured for both models",
            verdict="open",
        )
    ratio = after / before
    return Claim(
        figure=ratio_text(max(ratio, 1 / ratio)),
        label="faster" if ratio > 1 else "slower",
        detail=f"throughput {prefix_text(before, '/s')} to {prefix_text(after, '/s')}, "
        "single figures without an interval",
        verdict="open",
    )


def _size(dense: ModelFacts, compressed: ModelFacts) -> Claim:
    if dense.file_bytes and compressed.file_bytes:
        what, before, after = "file", dense.file_bytes, compressed.file_bytes
    else:
        what, before, after = "footprint", dense.footprint_bytes, compressed.footprint_bytes
    if not before or not after:
        return Claim(
            figure="Nothing left",
            label=f"of the {what}",
            detail=f"{bytes_text(before)} to {bytes_text(after)}",
            verdict="bad",
        )
    smaller = before >= after
    return Claim(
        figure=ratio_text(before / after if smaller else after / before),
        label=f"{'smaller' if smaller else 'larger'} {what}",
        detail=f"{bytes_text(before)} to {bytes_text(after)}"
        + (" on disk" if what == "file" else " of non-zero parameters; no file was written")
        + _alike(dense, compressed),
        verdict="good" if smaller else "bad",
    )


def _alike(dense: ModelFacts, compressed: ModelFacts) -> str:
    """Return the comparison of the sizes if both models have one format."""
    before, after = dense.packed_bytes, compressed.packed_bytes
    if not before or not after:
        return ""
    return (
        f" (dense as safetensors); {ratio_text(before / after)} with the dense model as .nncfx "
        f"too, {bytes_text(before)}"
    )


def _accuracy(evidence: Evidence) -> Claim:
    before, after = evidence.dense.accuracy, evidence.compressed.accuracy
    metric = evidence.metric
    detail = f"{metric_text(before, metric)} to {metric_text(after, metric)}"
    if evidence.judgement is not None:
        detail += f"; {_judged(evidence.judgement, metric)}"
        verdict = _verdict(evidence.judgement)
    elif evidence.studies:
        # later studies continue from earlier ones, so the last budget is that of the whole run
        last = evidence.studies[-1]
        budget = last.dense_accuracy - last.threshold if last.budget is None else last.budget
        # 1e-9: a loss equal to the budget is inside it, despite rounding
        inside = before - after <= budget + 1e-9
        detail += f"; {'inside' if inside else 'outside'} the budget of "
        detail += metric_change_text(-budget, metric)
        verdict = "good" if inside else "bad"
    else:
        verdict = "open"
    return Claim(
        figure=metric_change_text(after - before, metric),
        label=metric,
        detail=detail,
        verdict=verdict,
    )


def _judged(judgement: Judgement, metric: str) -> str:
    interval = ""
    if judgement.interval is not None:
        low, high = (metric_change_text(-one, metric) for one in reversed(judgement.interval))
        interval = f" ({low} to {high} with {100 * judgement.confidence:.3g} %)"
    return (
        f"{metric_change_text(-judgement.loss, metric)}{interval}, "
        f"{'inside' if judgement.is_inside else 'outside'} the budget of "
        f"{metric_change_text(-judgement.budget, metric)}, on {judgement.where}"
    )


def _verdict(judgement: Judgement) -> str:
    """Return "good" only if the whole interval, on held-out data, is inside."""
    if not judgement.is_inside:
        return "bad"
    return "good" if judgement.is_sure and judgement.held_out else "open"

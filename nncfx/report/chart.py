"""Computes the charts of a study in the units of the picture; the template only draws them."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from nncfx.evidence.evidence import Curve, Sample, StudyEvidence
from nncfx.report.axes import Scale, padded, spread, ticks
from nncfx.report.format import (
    is_fraction_metric,
    level_text,
    metric_text,
    prefix_texts,
    quantity_text,
    titled,
)

WIDTH, HEIGHT = 580, 350
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 566, 34, 296
_LABEL_Y, _LABEL_GAP = 14, 20
# The zoom is drawn if the budget is below this share of the whole chart's height.
_ZOOM_BELOW = 0.15
_TELLING = 0.5
"""A band as high as this share of the chart is not informative."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One sample: its position, its shape, and the position of its number above the plot."""

    x: float
    y: float
    shape: str
    number: str
    label_x: float
    words: str


@dataclass(frozen=True, kw_only=True)
class Window:
    """The region that a chart shows."""

    low_level: float
    high_level: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class PointSeries:
    """The points of a chart, in the units of the data.

    `value` returns the number of a sample for this chart, or None; `text` formats one.
    """

    name: str
    unit: str
    value: Callable[[Sample], float | None]
    text: Callable[[float], str]
    ticks: Callable[[Sequence[float]], list[str]]
    curve: Curve | None
    threshold: float | None


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart, ready to draw: positions in a picture of `WIDTH` by `HEIGHT`."""

    key: str
    title: str
    y_title: str
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    band: str
    bracket: tuple[float, float] | None
    mean: str
    threshold_y: float | None
    accuracy_x: float | None
    chosen_x: float | None
    marks: tuple[Mark, ...]
    legend: tuple[tuple[str, str], ...] = field(default=())
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = _RIGHT
    top: int = _TOP
    bottom: int = _BOTTOM
    label_y: int = _LABEL_Y


def study_charts(study: StudyEvidence, metric: str, key: str) -> tuple[Chart, ...]:
    """Return the charts of `study`: accuracy, a zoom at the budget if needed, objective.

    A search of a space has none, because its trials have no common level.

    `key` makes the ids of the charts unique on the page. The zoom is added if the budget would be
    too thin a strip of the whole chart to read, and contains samples.
    """
    if study.chosen is not None:
        return ()
    accuracy = _accuracy_series(study, metric)
    objective = _objective_series(study)
    whole = _window(study, accuracy)
    charts = [_chart(study, accuracy, whole, f"{key}-accuracy", f"{titled(metric)}, validation")]
    near = _near_budget(study, whole)
    if near is not None:
        title = f"{titled(metric)}, validation, enlarged at the budget"
        charts.append(_chart(study, accuracy, near, f"{key}-zoom", title))
    title = titled(study.objective_name)
    charts.append(_chart(study, objective, _window(study, objective), f"{key}-objective", title))
    return tuple(charts)


def _accuracy_series(study: StudyEvidence, metric: str) -> PointSeries:
    share = is_fraction_metric(metric)
    return PointSeries(
        name=metric,
        unit="%" if share else "",
        value=lambda sample: sample.accuracy if sample.is_done else None,
        text=lambda value: metric_text(value, metric),
        ticks=_percent_ticks if share else prefix_texts,
        curve=study.accuracy_curve,
        threshold=study.threshold,
    )


def _objective_series(study: StudyEvidence) -> PointSeries:
    return PointSeries(
        name=study.objective_name,
        unit=study.objective_unit,
        value=lambda sample: sample.objective if sample.is_done else None,
        text=lambda value: quantity_text(value, study.objective_unit),
        ticks=prefix_texts,
        curve=study.objective_curve,
        threshold=None,
    )


def _percent_ticks(values: Sequence[float]) -> list[str]:
    return [f"{round(value * 100, 6):g}" for value in values]


def _window(study: StudyEvidence, series: PointSeries) -> Window:
    """Return the window of all samples, the dense model and the threshold."""
    samples = (*study.samples, *study.comparison)
    values = [value for s in samples if (value := series.value(s)) is not None]
    values += [study.dense_accuracy, series.threshold] if series.threshold is not None else []
    if series.threshold is None and study.dense_objective is not None:
        values.append(study.dense_objective)
    low, high = padded(values)
    levels = [s.level for s in samples] + [study.level_accuracy, study.chosen_level]
    return Window(low_level=-0.02, high_level=max(levels) + 0.03, low=low, high=high)


def _near_budget(study: StudyEvidence, whole: Window) -> Window | None:
    """Return the window around the threshold, or None if the whole chart is sufficient."""
    budget = study.dense_accuracy - study.threshold
    if not 0 < budget < _ZOOM_BELOW * (whole.high - whole.low):
        return None
    low, high = study.threshold - 2 * budget, study.dense_accuracy + budget / 2
    levels = [
        s.level
        for s in study.samples
        if s.is_done and s.accuracy is not None and s.level > 0 and low <= s.accuracy <= high
    ]
    if not levels:
        return None
    levels += [study.level_accuracy, study.chosen_level]
    left, right = padded(levels, share=0.12)
    # a single level has no width; five percentage points of sparsity are legible
    middle = (left + right) / 2
    left, right = min(left, middle - 0.025), max(right, middle + 0.025)
    return Window(low_level=max(left, -0.02), high_level=min(right, 1.0), low=low, high=high)


def _chart(
    study: StudyEvidence, series: PointSeries, window: Window, key: str, title: str
) -> Chart:
    x = Scale(low=window.low_level, high=window.high_level, start=_LEFT, end=_RIGHT)
    y = Scale(low=window.low, high=window.high, start=_BOTTOM, end=_TOP)
    threshold, curve = series.threshold, series.curve
    between = bracket(study)
    at = ticks(y.low, y.high)
    marks = _marks(study, series, x, y)
    band = _band(curve, between, x, y) if curve and between else ""
    return Chart(
        key=key,
        title=title,
        y_title=f"{series.name} ({series.unit})" if series.unit else series.name,
        x_ticks=tuple((x(t), f"{t:g}") for t in ticks(max(x.low, 0.0), x.high)),
        y_ticks=tuple(zip(map(y, at), series.ticks(at), strict=True)),
        band=band,
        bracket=_bracket(between, x),
        mean=_path(_measured(study, series), x, y),
        threshold_y=y(threshold) if threshold is not None and y.holds(threshold) else None,
        accuracy_x=x(study.level_accuracy) if x.holds(study.level_accuracy) else None,
        chosen_x=x(study.chosen_level) if x.holds(study.chosen_level) else None,
        marks=marks,
        legend=_legend(study, series, marks, has_band=bool(band)),
    )


def _marks(study: StudyEvidence, series: PointSeries, x: Scale, y: Scale) -> tuple[Mark, ...]:
    """Return the marks of the samples within the scales, with their numbers spread."""
    shown: list[tuple[Sample, float, str]] = []
    for sample in study.samples:
        value = series.value(sample)
        if sample.is_done and value is None:
            continue
        # a failed sample has no value; it is drawn on the axis, at its level
        place = y.low if value is None else value
        if x.holds(sample.level) and y.holds(place):
            shown.append((sample, place, outcome(study, sample)))
    label_x = spread([x(s.level) for s, _, _ in shown], _LABEL_GAP, _LEFT + 4, _RIGHT - 4)
    marks = [
        Mark(
            x=x(sample.level),
            y=y(place),
            shape=shape,
            number=str(sample.number),
            label_x=round(place_x, 1),
            words=f"{sample.number}: level {level_text(sample.level)}, "
            + ("failed" if shape == "failed" else series.text(place)),
        )
        for (sample, place, shape), place_x in zip(shown, label_x, strict=True)
    ]
    return (*_comparison_marks(study, series, x, y), *marks)


def _comparison_marks(
    study: StudyEvidence, series: PointSeries, x: Scale, y: Scale
) -> Iterable[Mark]:
    for sample in study.comparison:
        value = series.value(sample)
        if value is not None and x.holds(sample.level) and y.holds(value):
            yield Mark(
                x=x(sample.level),
                y=y(value),
                shape="direct",
                number="",
                label_x=x(sample.level),
                words=f"direct compression: level {level_text(sample.level)}, "
                f"{series.text(value)}",
            )


def outcome(study: StudyEvidence, sample: Sample) -> str:
    """Return the outcome of `sample`: failed, dense, chosen, below the threshold, near or inside.

    Near samples reach the threshold by less than the noise of an accuracy.
    """
    if not sample.is_done:
        return "failed"
    if study.is_chosen(sample):
        return "chosen"
    if sample.stage == "dense":
        return "dense"
    if sample.accuracy is None or study.is_safe(sample):
        return "inside"
    return "near" if sample.accuracy >= study.threshold else "below"


def _legend(
    study: StudyEvidence, series: PointSeries, marks: Sequence[Mark], *, has_band: bool
) -> tuple[tuple[str, str], ...]:
    """Return what the chart shows as pairs of a swatch and words, omitting what it does not."""
    shapes = {mark.shape for mark in marks}
    entries = [
        ("chosen", f"chosen level {level_text(study.chosen_level)}", "chosen" in shapes),
        ("inside", "inside the budget", "inside" in shapes),
        ("near", "reaches the threshold, but too near to be sure", "near" in shapes),
        ("below", "below the threshold", "below" in shapes),
        ("failed", "failed", "failed" in shapes),
        ("dense", "dense model", "dense" in shapes),
        ("direct", "direct compression, no recovery", "direct" in shapes),
        ("mean", "measured", len(study.samples) > 1),
        ("bracket", "bracket of the crossing", bracket(study) is not None),
        ("band", "where the model expects it there", has_band),
        (
            "threshold",
            f"threshold {series.text(series.threshold)}" if series.threshold is not None else "",
            series.threshold is not None,
        ),
        ("accuracy-level", f"s_acc {level_text(study.level_accuracy)}", True),
    ]
    return tuple((swatch, words) for swatch, words, present in entries if present)


def _path(points: Iterable[tuple[float, float]], x: Scale, y: Scale) -> str:
    finite = (p for p in points if math.isfinite(p[0]) and math.isfinite(p[1]))
    return " L".join(f"{x(level)},{y(value)}" for level, value in finite)


def bracket(study: StudyEvidence) -> tuple[float, float] | None:
    """Return the levels between which the threshold is crossed; None if unknown.

    They are the highest level inside the budget, and the lowest above it that is outside.
    """
    done = [one for one in study.samples if one.is_done and one.accuracy is not None]
    low = max((one.level for one in done if study.is_safe(one)), default=None)
    if low is None:
        return None
    high = min((one.level for one in done if one.level > low), default=None)
    return None if high is None else (low, high)


def _bracket(between: tuple[float, float] | None, x: Scale) -> tuple[float, float] | None:
    if between is None or between[1] < x.low or between[0] > x.high:
        return None
    return x(max(between[0], x.low)), x(min(between[1], x.high))


def _measured(study: StudyEvidence, series: PointSeries) -> list[tuple[float, float]]:
    """Return the measurements by level; their mean if a level was tried twice."""
    values: dict[float, list[float]] = {}
    for sample in study.samples:
        if (value := series.value(sample)) is not None:
            values.setdefault(sample.level, []).append(value)
    return [(level, sum(found) / len(found)) for level, found in sorted(values.items())]


def _band(curve: Curve, between: tuple[float, float], x: Scale, y: Scale) -> str:
    """Return the outline of the model's band in the bracket; "" if it is too wide to be useful.

    Elsewhere samples are more informative than the model.
    """
    inside = [
        (level, low, high)
        for level, low, high in zip(curve.levels, curve.lower, curve.upper, strict=True)
        if between[0] <= level <= between[1] and math.isfinite(low) and math.isfinite(high)
    ]
    widest = max((high - low for _, low, high in inside), default=math.inf)
    if len(inside) < 2 or widest > _TELLING * (y.high - y.low):  # noqa: PLR2004 (an area)
        return ""
    upper = [(level, high) for level, _, high in inside]
    lower = [(level, low) for level, low, _ in inside]
    return _path([*upper, *reversed(lower)], x, y)

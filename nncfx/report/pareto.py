"""Trials as points: the metric against the cost of a model, and the Pareto front."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from nncfx.evidence.evidence import Evidence, ModelFacts, Sample, StudyEvidence
from nncfx.report.axes import Scale, padded, ticks
from nncfx.report.chart import outcome
from nncfx.report.format import (
    bytes_text,
    is_fraction_metric,
    level_text,
    metric_text,
    milliseconds_text,
    prefix_text,
    prefix_texts,
)

WIDTH, HEIGHT = 400, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 388, 24, 240

_FAR = 8.0
"""Costs use a logarithmic axis if the largest is at least this many times the smallest."""

_DECADES = 1.6
_FEWEST = 3
"""The fewest models for which a front is shown."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One model: its cost, its metric, its mark, and the anchor of its trial.

    Attributes:
        cost: In the unit of the chart; less is better.
        metric: More is better.
        shape: Like a mark in the chart of a study.
        words: The text of the tooltip.
        anchor: The id of its row on the page; "" if it has none.
        x: Its position in the picture, once computed.
        y: The same.
    """

    cost: float
    metric: float
    shape: str
    words: str
    anchor: str = ""
    x: float = 0.0
    y: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """One chart, ready to draw."""

    key: str
    title: str
    x_title: str
    y_title: str
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    points: tuple[Point, ...]
    front: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = _RIGHT
    top: int = _TOP
    bottom: int = _BOTTOM


@dataclass(frozen=True, kw_only=True)
class _Cost:
    key: str
    title: str
    of_model: Callable[[ModelFacts], float | None]
    of_sample: Callable[[StudyEvidence, Sample, int | None], float | None]
    text: Callable[[float], str]


def _latency(study: StudyEvidence, sample: Sample, batch: int | None) -> float | None:
    """Return the milliseconds per call, if the objective is this time or its inverse."""
    value = sample.objective
    if study.objective_unit == "examples/s":
        return 1000 * batch / value if value and batch else None
    return value if study.objective_unit == "ms" else None


_COSTS = (
    _Cost(
        key="latency",
        title="latency (ms)",
        of_model=lambda model: model.latency_ms,
        of_sample=_latency,
        text=milliseconds_text,
    ),
    _Cost(
        key="bytes",
        title="footprint (bytes)",
        of_model=lambda model: model.footprint_bytes or None,
        of_sample=lambda _, sample, __: sample.footprint_bytes,
        text=bytes_text,
    ),
    _Cost(
        key="macs",
        title="MACs",
        of_model=lambda model: model.macs or None,
        of_sample=lambda _, sample, __: sample.macs,
        text=prefix_text,
    ),
)


def front(points: Iterable[Point]) -> list[Point]:
    """Return the points that no other dominates with at most the cost and a higher metric.

    In ascending order of cost.

    >>> made = [Point(cost=c, metric=m, shape="", words="") for c, m in [(1, 5), (2, 4), (3, 6)]]
    >>> [point.cost for point in front(made)]
    [1, 3]
    """
    best: list[Point] = []
    for point in sorted(points, key=lambda one: (one.cost, -one.metric)):
        if not best or point.metric > best[-1].metric:
            best.append(point)
    return best


def scatters(evidence: Evidence) -> tuple[Scatter, ...]:
    """Return a chart for each cost that is known and not equal for at least three models.

    The trials' metrics are from the data that chose, and so are those of the dense and of the
    chosen model there, if a study has them.
    """
    charts = ((cost, _points(evidence, cost)) for cost in _COSTS)
    return tuple(
        _scatter(cost, points, evidence.metric)
        for cost, points in charts
        if len(points) >= _FEWEST and len({one.cost for one in points}) > 1
    )


def _points(evidence: Evidence, cost: _Cost) -> list[Point]:
    points = []
    for number, study in enumerate(evidence.studies, start=1):
        for sample in study.samples:
            value = cost.of_sample(study, sample, evidence.batch)
            if not sample.is_done or sample.accuracy is None or not value:
                continue
            points.append(
                Point(
                    cost=value,
                    metric=sample.accuracy,
                    shape=outcome(study, sample),
                    words=f"{study.name}, trial {sample.number}, "
                    f"{sample.candidate or f'level {level_text(sample.level)}'}: "
                    f"{metric_text(sample.accuracy, evidence.metric)}, {cost.text(value)}",
                    anchor=f"study{number}-trial{sample.number}",
                )
            )
    accuracy = evidence.studies[0].dense_accuracy if evidence.studies else evidence.dense.accuracy
    value = cost.of_model(evidence.dense)
    if points and value and not any(one.shape == "dense" for one in points):
        words = f"dense: {metric_text(accuracy, evidence.metric)}, {cost.text(value)}"
        points.insert(0, Point(cost=value, metric=accuracy, shape="dense", words=words))
    return points


def _scatter(cost: _Cost, points: Sequence[Point], metric: str) -> Scatter:
    share = is_fraction_metric(metric)
    x_at, place = _axis([one.cost for one in points])
    low_y, high_y = padded([one.metric for one in points])
    y = Scale(low=low_y, high=high_y, start=_BOTTOM, end=_TOP)
    y_at = ticks(y.low, y.high)
    placed = [replace(one, x=place(one.cost), y=y(one.metric)) for one in points]
    y_texts = [f"{round(v * 100, 6):g}" for v in y_at] if share else prefix_texts(y_at)
    return Scatter(
        key=cost.key,
        title=f"{metric} against {cost.title.partition(' (')[0]}",
        x_title=cost.title,
        y_title=f"{metric} (%)" if share else metric,
        x_ticks=tuple((place(at), prefix_text(at)) for at in x_at),
        y_ticks=tuple(zip(map(y, y_at), y_texts, strict=True)),
        points=tuple(placed),
        front=_steps(front(placed)),
    )


def _axis(costs: Sequence[float]) -> tuple[list[float], Callable[[float], float]]:
    """Return ticks and positions of costs: logarithmic if they differ by much."""
    if max(costs) < _FAR * min(costs):
        low, high = padded(costs)
        scale = Scale(low=max(low, 0.0), high=high, start=_LEFT, end=_RIGHT)
        return ticks(scale.low, scale.high)[::2], scale
    low, high = padded([math.log10(one) for one in costs])
    scale = Scale(low=low, high=high, start=_LEFT, end=_RIGHT)
    powers = range(math.floor(low), math.ceil(high) + 1)
    steps = (1, 10) if high - low > _DECADES else (1, 2, 5)
    at = [step * 10.0**power for power in powers for step in steps if step < 10]  # noqa: PLR2004 (digits)
    return [one for one in at if low <= math.log10(one) <= high], lambda one: scale(
        math.log10(one)
    )


def _steps(best: Sequence[Point]) -> str:
    """Return the front as steps: the best metric for each budget of cost."""
    if not best:
        return ""
    path = f"M{best[0].x},{best[0].y}"
    for one in best[1:]:
        path += f" H{one.x} V{one.y}"
    return path

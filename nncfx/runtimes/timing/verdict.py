"""Decides which of two timings is faster, if possible."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from nncfx.runtimes.timing.statistics import Array, bootstrap_medians, percentile_interval
from nncfx.runtimes.timing.timing import Timing

_SMALLEST_MS: Final = 1e-6
"""The time to assume if the clock did not advance."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    Attributes:
        winner: name of the faster one, or None if the intervals overlap or that of the speed-up
            contains 1.
        speed_up: time of the first over time of the second, for the same number of examples; above
            1 the second is faster.
        speed_up_interval: bootstrap interval of `speed_up`.
        text: the verdict in one sentence.
    """

    winner: str | None
    speed_up: float
    speed_up_interval: tuple[float, float]
    text: str


def verdict(
    first: Timing, second: Timing, *, names: tuple[str, str] = ("the first", "the second")
) -> Verdict:
    """Return which timing is faster; no winner if their intervals overlap or touch.

    Timings of one comparison are compared turn by turn: the speed-up is the median over the turns
    of the ratio of both medians, so that temporary slow-downs of the machine cancel, and its
    interval must also exclude 1 for a winner. Others are compared by their medians. Time is taken
    per example, so that timings of different batch sizes compare by throughput.
    """
    confidence = min(first.plan.confidence, second.plan.confidence)
    are_paired = first.series == second.series and len(first.rounds_ms) == len(second.rounds_ms)
    speed_up, draws = (_paired if are_paired else _apart)(first, second)
    scale = second.examples / first.examples
    interval = percentile_interval(scale * draws, confidence)
    winner = _winner(first, second, names)
    if interval[0] <= 1.0 <= interval[1]:
        winner = None
    speed_up *= scale
    return Verdict(winner, speed_up, interval, _text(winner, names, speed_up, interval))


def _paired(first: Timing, second: Timing) -> tuple[float, Array]:
    """Return the median over the turns of first over second, and its bootstrap."""
    times = [
        np.array([max(float(np.median(turn)), _SMALLEST_MS) for turn in timing.rounds_ms])
        for timing in (first, second)
    ]
    ratios = times[0] / times[1]
    plan = first.plan
    turns = [(float(ratio),) for ratio in ratios]
    draws = bootstrap_medians(turns, resamples=plan.resamples, seed=plan.seed)
    return float(np.median(ratios)), draws


def _apart(first: Timing, second: Timing) -> tuple[float, Array]:
    """Return the ratio of the medians, and its bootstrap."""
    resamples = min(first.plan.resamples, second.plan.resamples)
    draws = [
        bootstrap_medians(timing.rounds_ms, resamples=resamples, seed=first.plan.seed)
        for timing in (first, second)
    ]
    return first.median_ms / second.median_ms, draws[0] / draws[1]


def _winner(first: Timing, second: Timing, names: tuple[str, str]) -> str | None:
    (first_low, first_high), (second_low, second_high) = (
        (timing.interval_ms[0] / timing.examples, timing.interval_ms[1] / timing.examples)
        for timing in (first, second)
    )
    if first_high < second_low:
        return names[0]
    if second_high < first_low:
        return names[1]
    return None


def _text(
    winner: str | None, names: tuple[str, str], speed_up: float, interval: tuple[float, float]
) -> str:
    if winner is None:
        return (
            f"No winner: the intervals of {names[0]} and {names[1]} overlap "
            f"(speed-up {speed_up:.2f}, interval {interval[0]:.2f} to {interval[1]:.2f}). "
            "Measure longer, or take them for equal."
        )
    low, high = interval
    if winner == names[0]:
        speed_up, low, high = 1.0 / speed_up, 1.0 / high, 1.0 / low
    loser = names[1] if winner == names[0] else names[0]
    return f"{winner} is {speed_up:.2f}x as fast as {loser} (interval {low:.2f} to {high:.2f})."

"""Times several functions against each other: warm-up, interleaving, median, interval."""

import gc
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from typing_extensions import override

from nncfx.errors import ArgumentError, require_known
from nncfx.runtimes.timing.statistics import bootstrap_medians, percentile_interval
from nncfx.runtimes.timing.stopwatch import CLOCKS, Clock, Seconds, Stopwatch, held_up_share
from nncfx.tracing.calls.preservation import without_collections

_MS: Final = 1000.0
_CALLS_PER_WINDOW: Final = 5
_MOST_CALLS_PER_ROUND: Final = 100
_BUSY: Final = 0.25
"""The share of delayed calls from which `clock="auto"` uses CPU time."""


@dataclass(frozen=True, kw_only=True)
class TimingPlan:
    """How long and how carefully to measure.

    Attributes:
        seconds: time for the measured calls of each variant.
        warm_up_seconds: time after which a variant counts as warm even if it never settled.
        settled_within: the warm-up ends when two windows of five calls have medians that differ by
            at most this fraction.
        round_seconds: time of consecutive calls of one variant before the turn of the next; at
            least one call, at most 100.
        rounds: fewest turns for each variant, even after `seconds`; at least 5.
        confidence: of the interval, in (0, 1).
        resamples: drawings of the bootstrap.
        seed: of the bootstrap.
        clock: `"wall"`, the time that a user waits; `"cpu"`, the time that this process computes;
            `"auto"`, CPU time if other work on the machine delays more than a quarter of the
            calls, else wall time. CPU time is the time of a call on an idle machine, if it
            computes in one thread of this process; with several threads it is their sum.
            in one thread of this process; of several threads it is the sum.

    Raises:
        ArgumentError: a value is out of its range.
    """

    seconds: float = 1.0
    warm_up_seconds: float = 0.5
    settled_within: float = 0.05
    round_seconds: float = 0.005
    rounds: int = 5
    confidence: float = 0.95
    resamples: int = 1000
    seed: int = 0
    clock: str = "wall"

    def __post_init__(self) -> None:
        """Refuse a plan that cannot be carried out."""
        for name in ("seconds", "warm_up_seconds", "settled_within", "round_seconds"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise ArgumentError(
                    f"{name} is {getattr(self, name)}; it must be a finite number, 0 or more."
                )
        if self.rounds < 5:  # noqa: PLR2004 (fewer give no interval of 95 %)
            raise ArgumentError(f"rounds is {self.rounds}; an interval needs at least 5.")
        if not 0.0 < self.confidence < 1.0:
            raise ArgumentError(
                f"confidence is {self.confidence}; it lies in (0, 1). Write 0.95 for 95 %."
            )
        if self.resamples < 100:  # noqa: PLR2004 (fewer cannot tell 2.5 % from 0)
            raise ArgumentError(f"resamples is {self.resamples}; at least 100 are needed.")
        require_known("clock", self.clock, CLOCKS)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long one call takes.

    Attributes:
        median_ms: median of the measured calls.
        interval_ms: bootstrap interval of that median, with the plan's confidence.
        first_ms: the very first call, before any warm-up; always wall time.
        examples: examples per call.
        settled: False if the warm-up ran out of time before two windows agreed.
        rounds_ms: the measured calls, by turn.
        plan: how it was measured.
        series: name of the comparison; timings of one series were measured alternately.
        clock: `"wall"` or `"cpu"`: the choice of `"auto"`.
        held_up: share of the calls of the whole series that other work delayed by more than 5 % of
            their time; None if the plan uses wall time and CPU time was not measured.
        byte_products: how the session multiplied bytes, in words, if that depends on this CPU;
            else "".
        threads: CPU threads that a call may use; None if the runtime chose.

    Printed, it is one line.
    """

    median_ms: float
    interval_ms: tuple[float, float]
    first_ms: float
    examples: int
    settled: bool
    rounds_ms: tuple[tuple[float, ...], ...] = field(repr=False)
    plan: TimingPlan = field(repr=False)
    series: str = field(repr=False)
    clock: str = "wall"
    held_up: float | None = None
    byte_products: str = ""
    threads: int | None = None

    @override
    def __str__(self) -> str:
        """Return median and interval, and the call that was timed."""
        low, high = self.interval_ms
        clock = ", CPU time" if self.clock == "cpu" else ""
        if self.clock == "cpu" and self.held_up:
            clock += f" (other work held up {self.held_up:.0%} of the calls)"
        settled = "" if self.settled else "; not settled when the warm-up ended"
        digits = ",.4g" if self.throughput < 10_000 else ",.0f"  # noqa: PLR2004 (4 digits, no 1e+04)
        return (
            f"{self.median_ms:.4g} ms ({low:.4g} to {high:.4g}) per call of "
            f"{call_words(self.examples, self.threads)}{clock}; "
            f"{self.throughput:{digits}} examples/s{settled}"
        )

    @property
    def samples_ms(self) -> tuple[float, ...]:
        """All measured calls, in order."""
        return tuple(sample for turn in self.rounds_ms for sample in turn)

    @property
    def throughput(self) -> float:
        """Examples per second at the median."""
        return _MS * self.examples / self.median_ms

    def percentile_ms(self, share: float) -> float:
        """Return the milliseconds within which `share` (in [0, 1]) of the calls are done.

        Interpolated linearly between calls, like `numpy.quantile`.

        Raises:
            ArgumentError: `share` is out of range.
        """
        if not 0.0 <= share <= 1.0:
            raise ArgumentError(
                f"share is {share}; it lies in [0, 1]. Write 0.99 for the 99th percentile."
            )
        return float(np.quantile(self.samples_ms, share))


def call_words(batch: int | None, threads: int | None) -> str:
    """Return a description of one timed call, to be stated with its latency.

    >>> call_words(16, 1), call_words(1, None), call_words(None, 2)
    ('batch 16, 1 thread', 'batch 1, threads as the runtime chose', '2 threads')
    """
    size = "" if batch is None else f"batch {batch}, "
    if threads is None:
        return f"{size}threads as the runtime chose"
    return f"{size}{threads} thread{'' if threads == 1 else 's'}"


def measure(
    call: Callable[[], object],
    *,
    plan: TimingPlan | None = None,
    examples: int = 1,
    clock: Clock = time.perf_counter,
    cpu_clock: Clock = time.process_time,
) -> Timing:
    """Return how long `call` takes; like `compare`, with one variant."""
    calls = {"call": call}
    return compare(calls, plan=plan, examples=examples, clock=clock, cpu_clock=cpu_clock)["call"]


def compare(
    calls: Mapping[str, Callable[[], object]],
    *,
    plan: TimingPlan | None = None,
    examples: int = 1,
    clock: Clock = time.perf_counter,
    cpu_clock: Clock = time.process_time,
) -> dict[str, Timing]:
    """Return how long each of `calls` takes, measured alternately: A B C A B C ...

    Temporary slow-downs of the machine thus affect all variants alike. First each is called once
    (`first_ms`), then until two windows of calls agree, then in rounds until the plan's seconds
    are over. Each turn starts with one call that does not count, so that no variant is affected by
    the cache contents of its predecessor. Python's garbage collector is disabled meanwhile.

    Args:
        calls: the variants by name; each call does the whole work before it returns.
        plan: how long and how carefully to measure; `TimingPlan()` by default.
        examples: examples per call.
        clock: a monotonic clock in seconds, of elapsed time.
        cpu_clock: likewise, of the time that this process computes; read if the plan's clock is
            `"cpu"` or `"auto"`.

    Raises:
        ArgumentError: there is nothing to time, or `examples` is below 1.
    """
    plan = TimingPlan() if plan is None else plan
    if not calls:
        raise ArgumentError("There is nothing to time; give at least one call.")
    if examples < 1:
        raise ArgumentError(f"examples is {examples}; a call computes at least 1.")
    watch = Stopwatch(clock, None if plan.clock == "wall" else cpu_clock)
    gc.collect()
    with without_collections():
        first = {name: watch.time(call).wall for name, call in calls.items()}
        warm = {name: _warm_up(call, plan, watch) for name, call in calls.items()}
        rounds = _measured_rounds(
            calls, {name: warm[name].estimate for name in calls}, plan, watch
        )
    series = _series(rounds, plan, examples)
    return {name: series.timing(rounds[name], first[name], warm[name]) for name in calls}


@dataclass(frozen=True)
class _Warm:
    estimate: float
    settled: bool


def _warm_up(call: Callable[[], object], plan: TimingPlan, watch: Stopwatch) -> _Warm:
    """Call until two windows of calls agree, or the time for it is over."""
    start = watch.wall()
    previous: float | None = None
    while True:
        window: list[float] = []
        while len(window) < _CALLS_PER_WINDOW:
            wall, cpu = watch.time(call)
            window.append(wall if watch.cpu is None else cpu)
            if watch.wall() - start >= plan.warm_up_seconds:
                break
        present = float(np.median(window))
        if previous is not None and abs(present - previous) <= plan.settled_within * previous:
            return _Warm(present, settled=True)
        if watch.wall() - start >= plan.warm_up_seconds:
            return _Warm(present, settled=False)
        previous = present


def _measured_rounds(
    calls: Mapping[str, Callable[[], object]],
    estimates: Mapping[str, float],
    plan: TimingPlan,
    watch: Stopwatch,
) -> dict[str, list[tuple[Seconds, ...]]]:
    turns = {name: _calls_per_round(estimates[name], plan) for name in calls}
    rounds: dict[str, list[tuple[Seconds, ...]]] = {name: [] for name in calls}
    start = watch.wall()
    done = 0
    while done < plan.rounds or watch.wall() - start < plan.seconds * len(calls):
        for name, call in calls.items():
            call()  # untimed: loads its data into the caches after other variants' turns
            rounds[name].append(tuple(watch.time(call) for _ in range(turns[name])))
        done += 1
    return rounds


def _calls_per_round(estimate: float, plan: TimingPlan) -> int:
    if estimate <= 0.0:
        return _MOST_CALLS_PER_ROUND
    return int(np.clip(plan.round_seconds / estimate, 1, _MOST_CALLS_PER_ROUND))


@dataclass(frozen=True)
class _Series:
    """The facts shared by the timings of one comparison."""

    plan: TimingPlan
    examples: int
    clock: str
    held_up: float | None
    name: str

    def timing(self, rounds: list[tuple[Seconds, ...]], first: float, warm: _Warm) -> Timing:
        by_cpu = self.clock == "cpu"
        rounds_ms = tuple(
            tuple(_MS * (one.cpu if by_cpu else one.wall) for one in turn) for turn in rounds
        )
        samples = np.concatenate([np.asarray(turn) for turn in rounds_ms])
        medians = bootstrap_medians(rounds_ms, resamples=self.plan.resamples, seed=self.plan.seed)
        return Timing(
            median_ms=float(np.median(samples)),
            interval_ms=percentile_interval(medians, self.plan.confidence),
            first_ms=_MS * first,
            examples=self.examples,
            settled=warm.settled,
            rounds_ms=rounds_ms,
            plan=self.plan,
            series=self.name,
            clock=self.clock,
            held_up=self.held_up,
        )


def _series(
    rounds: Mapping[str, list[tuple[Seconds, ...]]], plan: TimingPlan, examples: int
) -> _Series:
    """Return the series with the clock to use, the same for all variants."""
    clock, held_up = plan.clock, None
    if plan.clock != "wall":
        held_up = held_up_share(one for turns in rounds.values() for turn in turns for one in turn)
        clock = "cpu" if plan.clock == "cpu" or held_up > _BUSY else "wall"
    return _Series(plan, examples, clock, held_up, uuid.uuid4().hex)

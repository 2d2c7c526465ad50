"""Timing on a clock that does not tick by itself: what is measured, in which order, how long."""

import gc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nncfx.errors import ArgumentError
from nncfx.runtimes import TimingPlan, compare, measure, verdict


class Machine:
    """A clock that moves only when a call costs time, and a log of the calls."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def clock(self) -> float:
        return self.now

    def call(self, name: str, cost: Callable[[int], float]) -> Callable[[], None]:
        """A call that costs `cost(k)` milliseconds the k-th time."""
        count = 0

        def run() -> None:
            nonlocal count
            self.log.append(name)
            self.now += cost(count) / 1000
            count += 1

        return run


def test_a_constant_cost_is_measured_exactly() -> None:
    machine = Machine()
    timing = measure(machine.call("a", lambda _: 2.0), examples=8, clock=machine.clock)
    assert timing.median_ms == pytest.approx(2.0)
    assert timing.interval_ms == pytest.approx((2.0, 2.0))
    assert timing.percentile_ms(0.9) == pytest.approx(2.0)
    assert timing.throughput == pytest.approx(4000.0)
    assert timing.settled


def test_a_throughput_is_printed_without_an_exponent() -> None:
    machine = Machine()
    timing = measure(machine.call("a", lambda _: 0.5), examples=33, clock=machine.clock)
    assert str(timing).endswith("; 66,000 examples/s")


def test_a_timing_that_was_held_up_or_did_not_settle_says_so() -> None:
    machine = Machine()
    timing = measure(machine.call("a", lambda _: 0.5), examples=33, clock=machine.clock)
    held_up = replace(timing, clock="cpu", held_up=0.94)
    assert "chose, CPU time (other work held up 94% of the calls); 66,000" in str(held_up)
    assert str(replace(timing, settled=False)).endswith("; not settled when the warm-up ended")


def test_the_first_call_is_kept_apart() -> None:
    machine = Machine()
    cost = lambda k: 500.0 if k == 0 else 2.0  # noqa: E731 (one line)
    timing = measure(machine.call("a", cost), clock=machine.clock)
    assert timing.first_ms == pytest.approx(500.0)
    assert max(timing.samples_ms) == pytest.approx(2.0)


def test_what_is_slow_at_first_is_not_measured() -> None:
    # 1.5x as slow every five calls less, until it settles at 2 ms after thirty.
    machine = Machine()
    call = machine.call("a", lambda k: 2.0 * 1.5 ** max(0, 6 - k // 5))
    timing = measure(call, plan=TimingPlan(warm_up_seconds=10.0), clock=machine.clock)
    assert max(timing.samples_ms) == pytest.approx(2.0)
    assert timing.settled


def test_a_call_that_never_settles_says_so() -> None:
    machine = Machine()
    call = machine.call("a", lambda k: 1.5 ** (k // 5 % 2))
    assert not measure(call, clock=machine.clock).settled


def test_variants_take_turns_with_one_call_each_that_does_not_count() -> None:
    machine = Machine()
    calls = {name: machine.call(name, lambda _: 100.0) for name in "ab"}
    plan = TimingPlan(seconds=0.0, warm_up_seconds=0.0)
    timings = compare(calls, plan=plan, clock=machine.clock)
    first_and_warm_up = 4
    assert "".join(machine.log[first_and_warm_up:]) == "aabb" * 5
    assert [len(timings[name].samples_ms) for name in "ab"] == [5, 5]


def test_the_measurement_ends_with_its_seconds() -> None:
    machine = Machine()
    plan = TimingPlan(seconds=2.0, warm_up_seconds=0.1)
    calls = {name: machine.call(name, lambda _: 3.0) for name in "abc"}
    compare(calls, plan=plan, clock=machine.clock)
    # Warm-up of 10 calls (two windows) each at most, and the last round may run over.
    assert 6.0 <= machine.now <= 6.0 + 3 * 0.1 + 3 * 0.03


def test_a_clock_that_does_not_see_a_call_still_ends() -> None:
    machine = Machine()
    timing = measure(
        machine.call("a", lambda _: 0.0), plan=TimingPlan(seconds=0.0), clock=machine.clock
    )
    assert timing.median_ms == 0.0


def test_a_machine_that_slows_down_slows_all_variants_alike() -> None:
    machine = Machine()
    drift = lambda: 1.0 + machine.now  # noqa: E731 (twice as slow after a second)
    calls = {
        "a": machine.call("a", lambda _: 5.0 * drift()),
        "b": machine.call("b", lambda _: 10.0 * drift()),
    }
    timings = compare(calls, clock=machine.clock)
    result = verdict(timings["a"], timings["b"], names=("a", "b"))
    assert result.speed_up == pytest.approx(0.5, rel=0.02)


def test_rare_outliers_do_not_move_the_median() -> None:
    machine = Machine()
    call = machine.call("a", lambda k: 100.0 if k % 50 == 49 else 2.0)
    timing = measure(call, clock=machine.clock)
    assert timing.interval_ms == pytest.approx((2.0, 2.0))
    assert max(timing.samples_ms) == pytest.approx(100.0)


def test_percentiles_are_numpys() -> None:
    machine = Machine()
    generator = np.random.default_rng(0)
    call = machine.call("a", lambda _: float(generator.lognormal()))
    timing = measure(call, clock=machine.clock)
    assert timing.percentile_ms(0.9) == pytest.approx(np.quantile(timing.samples_ms, 0.9))


def test_the_garbage_collector_rests_and_wakes() -> None:
    machine = Machine()
    seen = []
    measure(lambda: seen.append(gc.isenabled()), plan=TimingPlan(seconds=0), clock=machine.clock)
    assert not any(seen)
    assert gc.isenabled()


def test_the_garbage_collector_wakes_after_a_failure() -> None:
    with pytest.raises(ZeroDivisionError):
        measure(lambda: 1 / 0)
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seconds": -1.0}, "seconds is -1.0"),
        ({"warm_up_seconds": float("inf")}, "warm_up_seconds is inf"),
        ({"rounds": 4}, "rounds is 4; an interval needs at least 5"),
        ({"confidence": 95.0}, r"confidence is 95.0.* Write 0.95 for 95 %"),
        ({"resamples": 10}, "resamples is 10"),
        ({"clock": "wal"}, "There is no clock 'wal'. Did you mean 'wall'"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(
    settings: dict[str, float], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        TimingPlan(**settings)  # type: ignore[arg-type]  # wrong on purpose


def test_nothing_to_time_is_refused() -> None:
    with pytest.raises(ArgumentError, match="nothing to time"):
        compare({})


def test_a_call_of_no_example_is_refused() -> None:
    with pytest.raises(ArgumentError, match="examples is 0"):
        measure(lambda: None, examples=0)


def test_a_percentile_in_percent_is_refused() -> None:
    timing = measure(lambda: None, plan=TimingPlan(seconds=0.0))
    with pytest.raises(ArgumentError, match=r"share is 99; it lies in \[0, 1\]. Write 0.99"):
        timing.percentile_ms(99)


def test_timings_of_one_comparison_share_a_series() -> None:
    plan = TimingPlan(seconds=0.0)
    together = compare({"a": lambda: None, "b": lambda: None}, plan=plan)
    assert together["a"].series == together["b"].series
    assert together["a"].series != measure(lambda: None, plan=plan).series


class BusyMachine(Machine):
    """A machine on which other work holds up every `every`-th call for twice its time."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.computed, self.every = 0.0, every

    def cpu_clock(self) -> float:
        return self.computed

    def call(self, name: str, cost: Callable[[int], float]) -> Callable[[], None]:
        run = super().call(name, cost)
        count = 0

        def held_up() -> None:
            nonlocal count
            start = self.now
            run()
            spent = self.now - start
            self.computed += spent
            if count % self.every == 0:
                self.now += 2 * spent
            count += 1

        return held_up


@pytest.mark.parametrize(("every", "clock"), [(3, "cpu"), (5, "wall")])
def test_the_clock_is_cpu_time_where_other_work_holds_up_many_calls(
    every: int, clock: str
) -> None:
    machine = BusyMachine(every)
    timing = measure(
        machine.call("a", lambda _: 20.0),
        plan=TimingPlan(seconds=5.0, clock="auto"),
        clock=machine.clock,
        cpu_clock=machine.cpu_clock,
    )
    assert (timing.clock, timing.median_ms) == (clock, pytest.approx(20.0))
    assert timing.held_up == pytest.approx(1 / every, abs=0.05)


def test_wall_time_is_what_passes_however_busy_the_machine() -> None:
    machine = BusyMachine(1)
    timing = measure(machine.call("a", lambda _: 20.0), clock=machine.clock)
    assert (timing.clock, timing.held_up) == ("wall", None)
    assert timing.median_ms == pytest.approx(60.0)


def test_cpu_time_is_taken_where_it_is_asked_for() -> None:
    machine = BusyMachine(1)
    timing = measure(
        machine.call("a", lambda _: 20.0),
        plan=TimingPlan(clock="cpu"),
        clock=machine.clock,
        cpu_clock=machine.cpu_clock,
    )
    assert (timing.clock, timing.held_up) == ("cpu", 1.0)
    assert timing.median_ms == pytest.approx(20.0)
    assert timing.settled


def test_a_busy_machine_is_measured_as_long_as_a_quiet_one() -> None:
    machine = BusyMachine(1)
    plan = TimingPlan(seconds=2.0, warm_up_seconds=0.0, clock="cpu")
    call = machine.call("a", lambda _: 20.0)
    measure(call, plan=plan, clock=machine.clock, cpu_clock=machine.cpu_clock)
    assert machine.now == pytest.approx(2.0, abs=0.4)

"""The stopwatch that compares candidates with the dense model."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from nncfx.compressor.trials.candidate_timer import CandidateTimer
from nncfx.errors import ArgumentError, StorageError
from nncfx.export import ExportResult, export_onnx
from nncfx.runtimes import Timing, TimingPlan

INPUTS = torch.randn(16, 256)


def net(width: int) -> nn.Sequential:
    layers = [nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 8)]
    return nn.Sequential(*layers).eval()


def timing_of(ms: float) -> Timing:
    """Return what a clock would tell of calls that all take as long."""
    return Timing(
        median_ms=ms,
        interval_ms=(ms, ms),
        first_ms=ms,
        examples=16,
        settled=True,
        rounds_ms=((ms,),) * 5,
        plan=TimingPlan(),
        series="one",
    )


@pytest.fixture(params=["torch", "onnxruntime"])
def timer(request: pytest.FixtureRequest) -> Iterator[CandidateTimer]:
    with CandidateTimer(net(1024), INPUTS, request.param, seconds=0.1) as timer:
        yield timer


def test_latency_counts_from_the_dense_models(
    timer: CandidateTimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate that takes a quarter of the dense model's time beside it has a quarter of it."""
    dense, candidate = (timing_of(ms) for ms in (8.0, 2.0))
    times = iter([{"dense": timing_of(4.0)}, {"dense": dense, "candidate": candidate}])
    monkeypatch.setattr(
        "nncfx.compressor.trials.candidate_timer.time_sessions", lambda *_, **__: next(times)
    )
    assert timer.latency_ms(net(16)) == 1.0


def test_a_run_that_goes_on_counts_from_the_first_latency_of_the_dense_model(
    tmp_path: Path,
) -> None:
    """What a machine did in the meantime does not reach the candidates measured later."""
    dense, kept = net(256), tmp_path / "dense.json"
    with CandidateTimer(dense, INPUTS, "torch", seconds=0.05, kept=kept) as timer:
        first = timer.latency_ms(dense)
        assert timer.latency_ms(dense) == first
    with CandidateTimer(dense, INPUTS, "torch", seconds=0.05, kept=kept) as timer:
        assert timer.latency_ms(dense) == first
    kept.write_text(json.dumps({"latency_ms": 1e6}))  # as an earlier version wrote it
    with CandidateTimer(dense, INPUTS, "torch", seconds=0.05, kept=kept) as timer:
        assert timer.latency_ms(dense) == 1e6
        assert timer.throughput(dense) == pytest.approx(16 * 1000 / 1e6)


@pytest.mark.parametrize("fact", ["processor", "byte products"])
def test_latencies_of_another_processor_are_not_taken_for_ones_of_here(
    tmp_path: Path, fact: str
) -> None:
    dense, kept = net(16), tmp_path / "dense.json"
    with CandidateTimer(dense, INPUTS, "torch", seconds=0.05, kept=kept) as timer:
        timer.latency_ms(dense)
    kept.write_text(json.dumps({**json.loads(kept.read_text()), fact: "Z80"}))
    with (
        CandidateTimer(dense, INPUTS, "torch", seconds=0.05, kept=kept) as timer,
        pytest.raises(StorageError, match=f"another processor: {fact} was 'Z80', here it is "),
    ):
        timer.latency_ms(dense)


def test_throughput_counts_the_examples_of_a_batch(timer: CandidateTimer) -> None:
    dense, _ = timer.compare(net(16))
    assert dense.throughput == pytest.approx(16 * 1000 / dense.median_ms)


def test_onnx_runtime_tells_the_time_of_each_layer() -> None:
    with CandidateTimer(net(1024), INPUTS, "onnxruntime", seconds=0.1) as timer:
        before, after = timer.layer_times(net(16))
    assert {"0", "2", "3"} <= before.keys()
    assert {"0", "2", "3"} <= after.keys()
    assert all(ms > 0 for ms in after.values())


def test_models_that_were_compared_are_not_exported_again_for_their_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exported: list[nn.Module] = []

    def export(model: nn.Module, path: Path, _: object, **rest: bool) -> ExportResult:
        exported.append(model)
        return export_onnx(model, path, INPUTS, **rest)

    monkeypatch.setattr("nncfx.compressor.trials.candidate_timer.export_onnx", export)
    dense, one, other = net(64), net(32), net(16)
    with CandidateTimer(dense, INPUTS, "onnxruntime", seconds=0.05) as timer:
        timer.compare(one)
        timer.layer_times(one)
        _, after = timer.layer_times(other)
    assert exported == [one, dense, other]
    assert after


def test_a_runtime_without_a_profile_tells_nothing() -> None:
    with CandidateTimer(net(16), INPUTS, "torch") as timer:
        assert timer.layer_times(net(16)) == ({}, {})


def test_an_unknown_runtime_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ArgumentError, match="Did you mean 'onnxruntime'"):
        CandidateTimer(net(16), INPUTS, "onnxruntim")


def test_one_thread_is_timed_by_a_clock_that_other_work_does_not_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where half of the calls wait for others, the ratio is that of the work, not of the waits."""
    monkeypatch.setattr("nncfx.runtimes.timing.timing.held_up_share", lambda _: 0.5)
    with CandidateTimer(net(16), INPUTS, "onnxruntime", seconds=0.05, threads=1) as timer:
        timings = timer.compare(net(16))
    assert {timing.clock for timing in timings} == {"cpu"}
    with CandidateTimer(net(16), INPUTS, "onnxruntime", seconds=0.05) as timer:
        timings = timer.compare(net(16))
    assert {timing.clock for timing in timings} == {"wall"}  # of several threads it is a sum

"""Models and files are timed on a runtime by name."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import ArgumentError, RuntimeFailure
from nncfx.export import ExportResult, export_onnx
from nncfx.runtimes import (
    BuildOptions,
    TimingPlan,
    benchmark,
    runtime_named,
    sweep_batches,
    time_path,
    time_sessions,
)

QUICK = TimingPlan(seconds=0.02, warm_up_seconds=0.02)


def test_a_file_is_timed(exported: ExportResult, inputs: torch.Tensor) -> None:
    timing = time_path(exported, inputs, threads=1, plan=QUICK)
    low, high = timing.interval_ms
    assert 0 < low <= timing.median_ms <= high
    assert timing.examples == 2
    assert timing.throughput == pytest.approx(2000 / timing.median_ms)


def test_the_front_door_has_the_clock_of_the_command(
    exported: ExportResult, inputs: torch.Tensor
) -> None:
    timed = partial(nncfx.benchmark, exported.path, inputs, seconds=0.01)
    assert timed(threads=1).plan.clock == "auto"
    assert timed(threads=1, clock="cpu").clock == "cpu"
    assert timed().clock == "wall"


@pytest.mark.parametrize(("threads", "words"), [(1, "1 thread"), (2, "2 threads"), (None, None)])
def test_a_timing_says_of_what_call_it_is(
    exported: ExportResult, inputs: torch.Tensor, threads: int | None, words: str | None
) -> None:
    timing = time_path(exported, inputs, threads=threads, plan=QUICK)
    assert timing.threads == threads
    told = words or "threads as the runtime chose"
    assert f" ms ({timing.interval_ms[0]:.4g} to " in str(timing)
    assert f"per call of batch 2, {told}" in str(timing)
    assert f"threads={threads}" in repr(timing)


def test_a_module_is_timed_where_modules_run(model: nn.Module, inputs: torch.Tensor) -> None:
    assert benchmark(model, inputs, "torch", plan=QUICK).median_ms > 0


def test_a_module_is_exported_where_files_are_read(
    model: nn.Module, inputs: torch.Tensor, exported: ExportResult
) -> None:
    written: list[Path] = []

    def export(_model: nn.Module, path: Path, _inputs: object) -> None:
        path.write_bytes(exported.path.read_bytes())
        written.append(path)

    assert benchmark(model, inputs, export=export, plan=QUICK).median_ms > 0
    assert not written[0].exists()


def test_export_onnx_is_such_an_exporter(model: nn.Module, inputs: torch.Tensor) -> None:
    assert benchmark(model, inputs, export=export_onnx, plan=QUICK).median_ms > 0


def test_a_module_without_exporter_is_refused_where_files_are_read(
    model: nn.Module, inputs: torch.Tensor
) -> None:
    with pytest.raises(RuntimeFailure, match=r"reads ONNX files.*export=nncfx.export.export_onnx"):
        benchmark(model, inputs)


def test_an_unknown_runtime_is_refused(exported: ExportResult, inputs: torch.Tensor) -> None:
    with pytest.raises(ArgumentError, match="no runtime 'onnx'"):
        benchmark(exported, inputs, "onnx")


def test_sessions_are_timed_on_the_same_inputs(
    exported: ExportResult, model: nn.Module, inputs: torch.Tensor
) -> None:
    with (
        runtime_named("onnxruntime").build(exported, BuildOptions(threads=1)) as fast,
        runtime_named("torch").build(model, BuildOptions(threads=1)) as slow,
    ):
        timings = time_sessions({"fast": fast, "slow": slow}, inputs, plan=QUICK)
    assert list(timings) == ["fast", "slow"]
    assert len(timings["fast"].rounds_ms) == len(timings["slow"].rounds_ms)


def test_a_sweep_times_each_batch_and_counts_its_examples(
    exported: ExportResult, inputs: torch.Tensor
) -> None:
    plan = TimingPlan(seconds=0.0, warm_up_seconds=0.0)
    with runtime_named("onnxruntime").build(exported, BuildOptions(threads=1)) as session:
        found = sweep_batches(session, inputs, [1, 3, 8], plan=plan)
    assert [(size, timing.examples) for size, timing in found.items()] == [(1, 1), (3, 3), (8, 8)]


def test_a_sweep_repeats_what_belongs_to_the_batch_and_nothing_else() -> None:
    seen = []

    class Spy(nn.Module):
        def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
            seen.append((x.flatten().tolist(), tuple(table.shape)))
            return x

    given = {"x": torch.tensor([[1.0], [2.0]]), "table": torch.ones(5)}
    plan = TimingPlan(seconds=0.0, warm_up_seconds=0.0)
    with runtime_named("torch").build(Spy(), BuildOptions()) as session:
        sweep_batches(session, given, [3], plan=plan)
    assert seen[0] == ([1.0, 2.0, 1.0], (5,))


def test_a_batch_of_none_is_refused(exported: ExportResult, inputs: torch.Tensor) -> None:
    with (
        runtime_named("onnxruntime").build(exported, BuildOptions(threads=1)) as session,
        pytest.raises(ArgumentError, match="A batch of 0 holds no example"),
    ):
        sweep_batches(session, inputs, [0])


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "torch"])
def test_what_computes_in_one_thread_says_so(
    name: str, exported: ExportResult, model: nn.Module
) -> None:
    runtime = runtime_named(name)
    source = model if runtime.reads_modules else exported
    for threads, expected in ((1, True), (2, False), (None, False)):
        with runtime.build(source, BuildOptions(threads=threads)) as session:
            assert session.in_one_thread is expected


def test_auto_is_wall_time_for_several_threads(
    exported: ExportResult, inputs: torch.Tensor
) -> None:
    plan = replace(QUICK, clock="auto")
    assert time_path(exported, inputs, threads=2, plan=plan).held_up is None
    assert time_path(exported, inputs, threads=1, plan=plan).held_up is not None


def test_cpu_time_of_several_threads_is_refused(
    exported: ExportResult, inputs: torch.Tensor
) -> None:
    with pytest.raises(ArgumentError, match=r"adds up the time of all threads.*for one thread"):
        time_path(exported, inputs, threads=2, plan=replace(QUICK, clock="cpu"))

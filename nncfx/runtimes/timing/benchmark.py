"""Times models on a runtime."""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import torch
from torch import nn
from torch.utils import _pytree as pytree

from nncfx.errors import ArgumentError, RuntimeFailure
from nncfx.runtimes.protocol.named_inputs import examples_in
from nncfx.runtimes.protocol.runtime import BuildOptions, ModelSource, Runtime, Session
from nncfx.runtimes.registry import runtime_named
from nncfx.runtimes.timing.timing import Timing, TimingPlan, compare
from nncfx.tracing import ExampleInputs

Export: TypeAlias = Callable[[nn.Module, Path, ExampleInputs], object]
"""Writes a module to a path in the format that the runtime reads."""


def benchmark(
    model_or_path: ModelSource,
    example_inputs: ExampleInputs,
    runtime: str | Runtime = "onnxruntime",
    *,
    threads: int | None = None,
    plan: TimingPlan | None = None,
    export: Export | None = None,
) -> Timing:
    """Return how long the model takes on `example_inputs` in `runtime`.

    Args:
        model_or_path: a module, or an ONNX file.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs;
            axis 0 of the first tensor is the number of examples.
        runtime: its name in `RUNTIMES`, or your own `Runtime`.
        threads: CPU threads that one call may use; None leaves the choice to the runtime.
        plan: how long and how carefully to measure.
        export: writes a module as an ONNX file, for the runtimes that read files; such as
            `nncfx.export.export_onnx`.

    Raises:
        ArgumentError: the runtime is unknown.
        RuntimeFailure: the runtime rejects the model or the inputs, or it reads files and a module
            was given without `export`.
        MissingExtraError: the runtime is not installed.
    """
    options = BuildOptions(threads=threads)
    chosen = runtime_named(runtime)
    if not isinstance(model_or_path, (nn.Module, str, os.PathLike)):
        raise ArgumentError(
            f"benchmark takes a module or the path of an ONNX file, not a "
            f"{type(model_or_path).__name__}."
        )
    if not isinstance(model_or_path, nn.Module) or chosen.reads_modules:
        with chosen.build(model_or_path, options) as session:
            return time_sessions({chosen.name: session}, example_inputs, plan=plan)[chosen.name]
    if export is None:
        raise RuntimeFailure(
            f"Runtime '{chosen.name}' reads ONNX files, and {type(model_or_path).__name__} is a "
            "module. Pass export=nncfx.export.export_onnx, or export it first."
        )
    chosen.version()  # report a missing runtime before the export
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(model_or_path, path, example_inputs)
        return benchmark(path, example_inputs, chosen, threads=threads, plan=plan)


def time_path(
    path: str | os.PathLike[str],
    inputs: ExampleInputs,
    runtime: str = "onnxruntime",
    *,
    threads: int | None = None,
    plan: TimingPlan | None = None,
) -> Timing:
    """Return how long the ONNX file at `path` takes on `inputs`; otherwise as `benchmark`."""
    return benchmark(path, inputs, runtime, threads=threads, plan=plan)


def time_sessions(
    sessions: Mapping[str, Session], inputs: ExampleInputs, *, plan: TimingPlan | None = None
) -> dict[str, Timing]:
    """Return how long each session takes on the same `inputs`, measured alternately.

    Raises:
        ArgumentError: there is no session, or the plan's clock cannot measure their latency.
        RuntimeFailure: a session rejects the inputs.
    """
    plan = admissible_plan(plan or TimingPlan(), sessions.values())
    calls = {name: session.bind(inputs) for name, session in sessions.items()}
    timings = compare(calls, plan=plan, examples=examples_in(inputs))
    return {name: of_session(timings[name], session) for name, session in sessions.items()}


def of_session(timing: Timing, session: Session) -> Timing:
    """Return `timing` with the session's own facts: threads, products of bytes."""
    return replace(timing, byte_products=session.byte_products, threads=session.threads)


def admissible_plan(plan: TimingPlan, sessions: Iterable[Session]) -> TimingPlan:
    """Return `plan`, with wall time for `"auto"` unless all sessions compute in one thread.

    Raises:
        ArgumentError: the clock is `"cpu"`, and a session does not compute in one thread.
    """
    if plan.clock == "wall" or all(session.in_one_thread for session in sessions):
        return plan
    if plan.clock == "auto":
        return replace(plan, clock="wall")
    raise ArgumentError(
        "The cpu clock adds up the time of all threads of this process, and sees no other "
        "device, so it measures no latency. Build for one thread (--threads 1), or use the wall "
        "clock."
    )


def sweep_batches(
    session: Session,
    inputs: ExampleInputs,
    batches: Sequence[int],
    *,
    plan: TimingPlan | None = None,
) -> dict[int, Timing]:
    """Return how long a call takes for each batch size, measured alternately.

    Tensors of `inputs` whose axis 0 is the batch (as long as the first tensor's) are repeated or
    cut to each size; the others do not change.

    Args:
        session: of a model whose batch is open.
        inputs: example inputs, of any batch.
        batches: the sizes, each at least 1.
        plan: how long and how carefully to measure.

    Raises:
        ArgumentError: there is no size, or one is below 1.
        RuntimeFailure: the session rejects a size.
    """
    if bad := [size for size in batches if size < 1]:
        raise ArgumentError(f"A batch of {bad[0]} holds no example; sizes begin at 1.")
    plan = admissible_plan(plan or TimingPlan(), [session])
    size_now = examples_in(inputs)
    timings = compare(
        {str(size): session.bind(_resized(inputs, size_now, size)) for size in batches}, plan=plan
    )
    return {
        size: replace(of_session(timings[str(size)], session), examples=size) for size in batches
    }


def _resized(inputs: ExampleInputs, now: int, size: int) -> ExampleInputs:
    index = torch.arange(size, device="cpu") % now

    def resized(leaf: object) -> object:
        if isinstance(leaf, torch.Tensor) and leaf.ndim and leaf.shape[0] == now:
            return leaf[index.to(leaf.device)]
        return leaf

    found: ExampleInputs = pytree.tree_map(resized, inputs)
    return found

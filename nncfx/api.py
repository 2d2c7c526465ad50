"""Public functions that combine otherwise independent packages."""

import os

from torch import nn

from nncfx import runtimes
from nncfx.export import export_onnx
from nncfx.tracing import ExampleInputs

__all__ = ["benchmark"]


def benchmark(
    model_or_path: nn.Module | str | os.PathLike[str],
    example_inputs: ExampleInputs,
    runtime: str | runtimes.Runtime = "onnxruntime",
    *,
    threads: int | None = None,
    seconds: float = 1.0,
    clock: str = "auto",
) -> runtimes.Timing:
    """Return how long one call of a model on `example_inputs` takes in `runtime`.

    If the runtime reads ONNX files, a module is exported first. To compare two models, use `nncfx
    benchmark A.onnx B.onnx` or `nncfx.runtimes.compare`, which alternate between them.

    Args:
        model_or_path: a module, or the path of an ONNX file.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs.
        runtime: `"onnxruntime"`, `"openvino"`, `"torch"`, or your own `Runtime`.
        threads: CPU threads that one call may use; None leaves the choice to the runtime.
        seconds: how long to measure, after the warm-up.
        clock: as in `nncfx.runtimes.TimingPlan`, and in the command: `"auto"` uses CPU time if a
            call computes in one thread that other work delays, else wall time.

    Raises:
        ArgumentError: the runtime is unknown, or a number is out of range.
        ExportError: the module cannot be exported.
        RuntimeFailure: the runtime rejects the model or the inputs.
        MissingExtraError: the runtime or the exporter is not installed.
    """
    return runtimes.benchmark(
        model_or_path,
        example_inputs,
        runtime,
        threads=threads,
        plan=runtimes.TimingPlan(seconds=seconds, clock=clock),
        export=lambda module, path, inputs: export_onnx(module, path, inputs, dynamic_batch=False),
    )

"""Time per layer, from ONNX Runtime's own profile."""

import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nncfx.errors import ArgumentError, RuntimeFailure
from nncfx.runtimes.backends.onnx_runtime import OnnxRuntime
from nncfx.runtimes.protocol.runtime import BuildOptions
from nncfx.tracing import ExampleInputs

UNATTRIBUTED: Final = "(runtime)"
"""The entry for the time of operations that the runtime added or fused beyond recognition."""

_US_PER_MS: Final = 1000.0
_WARM_UP_RUNS: Final = 5
_MOST_RUNS: Final = 10_000
_KERNEL: Final = "_kernel_time"
# ONNX Runtime's additions to the names of nodes that it rewrites.
_ADDITIONS: Final = re.compile(r"^fused |/\w*Fusion/?$|_nchwc$|_nhwc$|_token_\d+$|_quant$")


@dataclass(frozen=True)
class LayerTime:
    """The time of one module in one run.

    Attributes:
        module: its dotted path; `""` for the model's own forward, `UNATTRIBUTED` for the rest.
        ms: median over the runs of the time of all its operations.
        operators: kinds of the operations that the runtime ran for it, in order.
        output_shape: of the last of them; `()` without a tensor.
        macs: multiply-accumulates of all of them as run, including channels added as padding.
    """

    module: str
    ms: float
    operators: tuple[str, ...]
    output_shape: tuple[int, ...]
    macs: int


@dataclass(frozen=True)
class Profile:
    """The time of one run, layer by layer.

    Attributes:
        layers: in the order in which they run.
        total_ms: median over the runs of the time of all operations.
        run_ms: median over the runs of the whole run, profiling included.
    """

    layers: tuple[LayerTime, ...]
    total_ms: float
    run_ms: float

    def ms_of(self, module: str) -> float:
        """Return the milliseconds of `module`; 0 if the runtime ran nothing for it."""
        return next((layer.ms for layer in self.layers if layer.module == module), 0.0)


def profile_layers(
    path: str | os.PathLike[str],
    inputs: ExampleInputs,
    *,
    modules: Mapping[str, str],
    threads: int | None = None,
    runs: int = 30,
) -> Profile:
    """Return the time of each layer of the ONNX file at `path`; see `compare_profiles`."""
    return compare_profiles(
        {"model": path}, inputs, modules={"model": modules}, threads=threads, runs=runs
    )["model"]


def compare_profiles(
    paths: Mapping[str, str | os.PathLike[str]],
    inputs: ExampleInputs,
    *,
    modules: Mapping[str, Mapping[str, str]],
    threads: int | None = None,
    runs: int = 30,
) -> dict[str, Profile]:
    """Return the time of each layer of several ONNX files, run alternately: A B A B ...

    Args:
        paths: the files by name.
        inputs: of each file.
        modules: for each file, `{name of node or value: module}`, from `ExportResult.modules` or
            `nncfx.export.modules_in_file`.
        threads: CPU threads that one run may use.
        runs: measured runs of each file, in [1, 10000]; five more warm it up.

    Raises:
        ArgumentError: `runs` is out of range, or a file has no entry in `modules`.
        RuntimeFailure: ONNX Runtime rejects a file or the inputs.
        MissingExtraError: ONNX Runtime is not installed.
    """
    if not 1 <= runs <= _MOST_RUNS:
        raise ArgumentError(f"runs is {runs}; it lies in 1 to {_MOST_RUNS}.")
    if without := [name for name in paths if name not in modules]:
        raise ArgumentError(
            f"'modules' has no entry for '{without[0]}'; give one for each file. "
            "An empty one attributes nothing."
        )
    runtime = OnnxRuntime()
    options = BuildOptions(threads=threads, profile=True)
    with ExitStack() as stack:
        sessions = {
            name: stack.enter_context(runtime.build(path, options)) for name, path in paths.items()
        }
        calls = [session.bind(inputs) for session in sessions.values()]
        for _ in range(_WARM_UP_RUNS + runs):
            for call in calls:
                call()
        return {
            name: _profile(session.finish_profile(), modules[name])
            for name, session in sessions.items()
        }


def _profile(text: str, modules: Mapping[str, str]) -> Profile:
    runs = _runs(json.loads(text))[_WARM_UP_RUNS:]
    if not runs:
        raise RuntimeFailure("ONNX Runtime recorded no run in its profile.")
    times: dict[str, list[float]] = {}
    for number, run in enumerate(runs):
        for event in run.events:
            of_module = times.setdefault(_module_of(event["name"], modules), [0.0] * len(runs))
            of_module[number] += event["dur"] / _US_PER_MS
    events: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for event in runs[0].events:
        events[_module_of(event["name"], modules)].append(event["args"])
    return Profile(
        layers=tuple(
            LayerTime(
                module,
                float(np.median(of_module)),
                tuple(str(one["op_name"]) for one in events[module]),
                _shapes(events[module][-1], "output")[0],
                sum(_macs(one) for one in events[module]),
            )
            for module, of_module in times.items()
        ),
        total_ms=float(np.median(np.sum(list(times.values()), axis=0))),
        run_ms=float(np.median([run.ms for run in runs])),
    )


def _shapes(operation: Mapping[str, Any], side: str) -> list[tuple[int, ...]]:
    """Return the shapes of the inputs or outputs; one `()` if there are none."""
    tensors = operation.get(f"{side}_type_shape", [])
    return [tuple(shape) for tensor in tensors for shape in tensor.values()] or [()]


def _macs(operation: Mapping[str, Any]) -> int:
    inputs, output = _shapes(operation, "input"), _shapes(operation, "output")[0]
    kind = operation["op_name"]
    if "Conv" in kind and not kind.startswith("ConvTranspose"):
        weights = [shape for shape in inputs[1:] if len(shape) == len(inputs[0])]
        return math.prod(output) * math.prod(weights[0][1:]) if weights else 0
    if "MatMul" in kind or "Gemm" in kind:
        return math.prod(output) * (inputs[0][-1] if inputs[0] else 0)
    return 0


@dataclass(frozen=True)
class _Run:
    events: Sequence[Mapping[str, Any]]
    ms: float


def _runs(events: Sequence[Mapping[str, Any]]) -> list[_Run]:
    """Return the operations of each run; the profile lists them before their run."""
    runs: list[_Run] = []
    operations: list[Mapping[str, Any]] = []
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            operations.append(event)
        elif event.get("name") == "model_run":
            runs.append(_Run(operations, event["dur"] / _US_PER_MS))
            operations = []
    return runs


def _module_of(name: str, modules: Mapping[str, str]) -> str:
    name = name.removesuffix(_KERNEL)
    while name not in modules:
        shorter = _ADDITIONS.sub("", name)
        if shorter == name:
            return UNATTRIBUTED
        name = shorter
    return modules[name]

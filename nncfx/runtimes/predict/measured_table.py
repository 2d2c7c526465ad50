"""Measures a latency table in ONNX Runtime on variants of a model."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nncfx.graph import NNCFGraph
from nncfx.narration import tracked
from nncfx.runtimes.backends.onnx_runtime import OnnxRuntime
from nncfx.runtimes.inspect.profile import profile_layers
from nncfx.runtimes.predict.latency_table import LatencyTable, fitted_table
from nncfx.runtimes.processor import processor_kind
from nncfx.runtimes.timing.benchmark import time_path
from nncfx.runtimes.timing.timing import TimingPlan
from nncfx.tracing import ExampleInputs

_LOGGER = logging.getLogger(__name__)
_RUNS: Final = 15


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A model with certain widths, as a graph and as the file for the runtime.

    Attributes:
        graph: traced on the example inputs (`nncfx.tracing.trace`).
        path: the ONNX file.
        modules: `{name of node or value: module}`, from `ExportResult.modules`.
    """

    graph: NNCFGraph
    path: str | os.PathLike[str]
    modules: Mapping[str, str]


def measured_table(
    variants: Sequence[Variant],
    example_inputs: ExampleInputs,
    *,
    threads: int = 1,
    seconds: float = 0.5,
    runs: int = _RUNS,
) -> LatencyTable:
    """Return the table of the modules of `variants`, measured here in ONNX Runtime.

    Variants should differ in the widths of all layers, from the narrowest to the widest that a
    search may request; a dozen random ones predict ResNet-50 within 2 % on a quiet machine. On a
    busy machine, one thread is timed by its CPU time.

    Args:
        variants: at least two.
        example_inputs: the inputs that the graphs were traced on.
        threads: CPU threads of one call.
        seconds: how long to time the whole run of each variant.
        runs: profiled runs of each variant.

    Raises:
        ArgumentError: there are fewer than two variants, or a profile has no time for any module.
        RuntimeFailure: ONNX Runtime rejects a file or the inputs.
        MissingExtraError: ONNX Runtime is not installed.
    """
    plan = TimingPlan(seconds=seconds, clock="auto")
    module_ms, run_ms = [], []
    for variant in tracked(variants, "Measuring the latency table", redraws=False):
        profile = profile_layers(
            variant.path, example_inputs, modules=variant.modules, threads=threads, runs=runs
        )
        module_ms.append({layer.module: layer.ms for layer in profile.layers})
        run_ms.append(
            time_path(Path(variant.path), example_inputs, threads=threads, plan=plan).median_ms
        )
    runtime = OnnxRuntime()
    return fitted_table(
        [variant.graph for variant in variants],
        module_ms,
        run_ms,
        machine={
            "runtime": runtime.name,
            "version": runtime.version(),
            "threads": str(threads),
            **processor_kind(),
        },
    )


def read_table(text: str) -> LatencyTable:
    """Return the table in `text`, and log a warning if it is from another processor.

    Raises:
        StorageError: `text` is not a table, or has another version.
    """
    table = LatencyTable.from_json(text)
    others = [
        f"{name} '{table.machine[name]}', here '{here}'"
        for name, here in processor_kind().items()
        if table.machine.get(name, here) != here
    ]
    if others:
        _LOGGER.warning(
            "The latency table was measured on another processor: %s. What it predicts is the "
            "latency there; measure a table here if the model will run here.",
            "; ".join(others),
        )
    return table

"""Runs `nncfx benchmark`: measures, shows, compares with the baseline."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.table import Table

from nncfx.cli.console import output_console, print_json
from nncfx.cli.faults import FAULT, fault_text
from nncfx.cli.signature import signature_inputs
from nncfx.cli.timing.baseline import Change, changes, read_baseline
from nncfx.cli.timing.files import Series, TimingRequest, time_files
from nncfx.cli.timing.output import layer_table, series_json, series_table
from nncfx.errors import ArgumentError
from nncfx.export import modules_in_file
from nncfx.report.format import significant_text
from nncfx.runtimes import call_words, compare_profiles, runtime_named
from nncfx.runtimes.protocol.named_inputs import examples_in

REGRESSION: Final = 3
"""The exit code when a model became slower than its baseline."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkOutput:
    """What to show: JSON or tables, optionally layers, and a baseline to compare with."""

    as_json: bool = False
    layers: bool = False
    baseline: Path | None = None
    tolerance: float = 0.05


def run_benchmark(request: TimingRequest, output: BenchmarkOutput) -> int:
    """Return the exit code: 0 done, 2 a runtime failed while others continued, 3 a regression.

    Raises:
        NNCFXError: nothing could be measured (the first reason), or the baseline is invalid.
    """
    if output.layers and set(request.runtimes) != {"onnxruntime"}:
        raise ArgumentError("Only onnxruntime reports the time of layers; leave --layers out.")
    if not output.tolerance >= 0:
        raise ArgumentError(
            f"--tolerance is {output.tolerance}; it is a share, at least 0: 0.05 is 5 %."
        )
    baseline = None if output.baseline is None else read_baseline(output.baseline)
    found, failures = time_files(request)
    if not found:
        raise failures[0].error
    compared = [] if baseline is None else changes(found, baseline, output.tolerance)
    if output.as_json:
        print_json(series_json(found, failures))
    else:
        _show(found, _layers(request) if output.layers else None)
    for failure in failures:
        sys.stderr.write(fault_text(failure.error))
    for change in compared:
        sys.stderr.write(_told(change))
    if any(change.is_regression for change in compared):
        return REGRESSION
    return FAULT if failures else 0


def _show(found: Sequence[Series], layers: Table | None) -> None:
    console = output_console()
    for table in (*map(series_table, found), *([layers] if layers else ())):
        console.print(table)


def _layers(request: TimingRequest) -> Table:
    """Return the table of the layers from ONNX Runtime's profile."""
    first = request.paths[0]
    with runtime_named("onnxruntime").build(first, request.options) as session:
        inputs = signature_inputs(session, first, request.shapes, request.batches[0])
    profiles = compare_profiles(
        {str(path): path for path in request.paths},
        inputs,
        modules={str(path): modules_in_file(path) for path in request.paths},
        threads=request.options.threads,
    )
    call = call_words(examples_in(inputs), request.options.threads)
    return layer_table({Path(name): profile for name, profile in profiles.items()}, call)


def _told(change: Change) -> str:
    before, after = significant_text(change.before_ms), significant_text(change.after_ms)
    word = "REGRESSION" if change.is_regression else "ok"
    return f"{word}: {change.name}: {before} ms before, {after} ms now\n"

"""Writes the exported file of a task, judges it, and times it against the dense model's."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from nncfx.compressor.evaluation.metrics import finite_metric, metric_name
from nncfx.errors import MissingExtraError, RuntimeFailure
from nncfx.evidence.evidence import Evidence
from nncfx.evidence.exported import ExportedFile
from nncfx.evidence.judgement import is_within
from nncfx.export import export_onnx
from nncfx.export.checks.saturation_check import overflowing_layers
from nncfx.export.onnx_export import export_target
from nncfx.quantization import quantize
from nncfx.runtimes import (
    BuildOptions,
    exact_byte_sums,
    metric_through,
    runtime_named,
    time_sessions,
    verdict,
)
from nncfx.targets import Target
from nncfx.tasks.config import DENSE_FILE
from nncfx.tasks.task import Task
from nncfx.tasks.training import Say, Trained


def with_export(evidence: Evidence, facts: Mapping[str, Any], file: Path) -> Evidence:
    """Return `evidence` with the `facts` of the exported `file`, and notes for its reader."""
    times = facts.get("latency_ms", {})
    exported = ExportedFile(
        runtime=facts.get("runtime", ""),
        bytes=facts["onnx_bytes"],
        dense_bytes=facts.get("dense_onnx_bytes"),
        metric=facts.get("exported_metric"),
        dense_metric=facts.get("dense_file_metric"),
        latency_ms=times.get("exported"),
        dense_latency_ms=times.get("dense"),
        batch=facts.get("latency_batch"),
        threads=facts.get("latency_threads"),
        speed_up=facts.get("speed_up"),
        is_clear=facts.get("is_clear"),
        is_inside=facts.get("file_is_inside"),
    )
    files = {**evidence.files, "ONNX model": str(file)}
    needed = session_note(facts)
    notes = (*evidence.notes, f"ONNX model: {needed}") if needed else evidence.notes
    return dataclasses.replace(evidence, exported=exported, files=files, notes=notes)


def session_note(facts: Mapping[str, Any]) -> str:
    """Return the settings under which the `facts` of a file hold; "" if they always hold."""
    settings = facts.get("file_session")  # missing in results of earlier versions
    if not settings:
        return ""
    words = ", ".join(f"{key}={value}" for key, value in settings.items())
    return (
        f"its metric and time are those of sessions with {words}. Without it, "
        f"{facts['runtime']} computes something else on this CPU, which has no VNNI: give your "
        "sessions the entry, or export for 'onnxruntime-avx2'."
    )


def export_file(
    task: Task, folder: Path, compressed: Trained, say: Say
) -> tuple[nn.Module, dict[str, Any]]:
    """Quantize if asked, export, judge and time the file; return the model, and facts about it."""
    export = task.config.export
    assert export is not None  # noqa: S101 (checked by the caller)
    model = compressed.model
    target = export_target(model, export.target)
    if export.quantize:
        say(f"quantizing for {target.name}")
        model = quantize(model, task.data.train, target=target)
    say(f"exporting for {target.name}")
    written = export_onnx(
        model,
        folder / export.file,
        task.example_inputs,
        target,
        dynamic_batch=export.dynamic_batch,
        opset=export.opset,
    )
    facts: dict[str, Any] = {"onnx_bytes": written.size_bytes}
    if export.benchmark:
        say("timing the file against the dense model's")
        try:
            facts |= _timed(task, written.path, compressed.dense, target, folder)
        except (MissingExtraError, RuntimeFailure) as error:  # the file is valid nevertheless
            say(f"not timed: {error}")
    elif task.config.data is not None:
        judges = task.data.test or task.data.validation
        facts["exported_metric"] = finite_metric(task.metric, model, judges, "exported")
    return model, facts


def _timed(
    task: Task, file: Path, dense: nn.Module, target: Target, folder: Path
) -> dict[str, Any]:
    """Return the latency, alternating with the dense model's, and the metric in the runtime."""
    export = task.config.export
    assert export is not None  # noqa: S101 (checked by the caller)
    plain = folder / DENSE_FILE
    export_onnx(dense, plain, task.example_inputs, target, dynamic_batch=export.dynamic_batch)
    runtime = runtime_named(target.runtime or target.name)
    facts: dict[str, Any] = {"runtime": runtime.name, "dense_onnx_bytes": plain.stat().st_size}
    search = task.config.search
    options = BuildOptions(threads=None if search is None else search.threads)
    with runtime.build(plain, options) as one, runtime.build(file, options) as other:
        if (settings := exact_byte_sums()) and other.byte_products and _overflows(file):
            facts["file_session"] = settings
        times = time_sessions({"dense": one, "exported": other}, task.example_inputs)
        if task.config.data is not None and export.dynamic_batch:
            judges = task.data.test or task.data.validation
            facts["metric"] = metric_name(task.metric)
            facts["file_data"] = "validation" if task.data.test is None else "test"
            facts["exported_metric"] = metric_through(other, judges, task.metric)
            facts["dense_file_metric"] = metric_through(one, judges, task.metric)
            if search is not None:
                lost = facts["dense_file_metric"] - facts["exported_metric"]
                facts["file_is_inside"] = is_within(lost, search.eps)
    facts["latency_ms"] = {name: one.median_ms for name, one in times.items()}
    facts |= {"latency_batch": times["dense"].examples, "latency_threads": times["dense"].threads}
    outcome = verdict(times["dense"], times["exported"])
    facts |= {"speed_up": outcome.speed_up, "is_clear": outcome.winner is not None}
    return facts


def _overflows(file: Path) -> bool:
    import onnx_ir as ir

    return bool(overflowing_layers(ir.load(file).graph))

"""`nncfx benchmark`: time ONNX files against each other on inputs made from their signatures."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import torch
from rich import box
from rich.table import Table

from nncfx.errors import ArgumentError, did_you_mean
from nncfx.report.format import prefix_text, ratio_text, significant_text
from nncfx.runtimes import (
    RUNTIMES,
    BuildOptions,
    Session,
    Timing,
    TimingPlan,
    Verdict,
    compare,
    runtime_named,
    verdict,
)
from nncfx.runtimes.named_inputs import InputSpec

__all__ = ["Comparison", "compare_files", "comparison_json", "comparison_table", "parse_shapes"]

Shape = tuple[int, ...]


@runtime_checkable
class _Described(Protocol):
    """A session that knows the signature of its model, as all that read files do."""

    inputs: tuple[InputSpec, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The timing of one file, and how it stands against the first; None for the first itself."""

    path: Path
    timing: Timing
    verdict: Verdict | None


def compare_files(
    paths: Sequence[Path],
    runtime: str,
    *,
    shapes: Mapping[str, Shape],
    batch: int,
    options: BuildOptions,
    plan: TimingPlan,
) -> tuple[Comparison, ...]:
    """Return the timings of the ONNX files at `paths`, measured in turns.

    Each gets random inputs of its own signature (numbers from a fixed seed; zeros for whole
    numbers and flags). `shapes` by input name settle open axes; of the others axis 0 is `batch`.

    Raises:
        ArgumentError: the runtime reads no files, or an open axis is not settled.
        RuntimeFailure: a file is missing or refused.
    """
    chosen = runtime_named(runtime)
    if chosen.reads_modules:
        readers = sorted(name for name, known in RUNTIMES.items() if not known.reads_modules)
        raise ArgumentError(
            f"Runtime '{runtime}' runs modules and reads no ONNX files; "
            f"use --runtime {' or '.join(readers)}.",
        )
    with contextlib.ExitStack() as stack:
        calls = {}
        examples = 1
        for number, path in enumerate(paths):
            session = stack.enter_context(chosen.build(path, options))
            inputs = _inputs(session, path, shapes, batch)
            sizes = [value.shape[0] for value in inputs.values() if value.ndim]
            examples = sizes[0] if sizes else 1
            calls[str(number)] = session.bind(inputs)
        timings = list(compare(calls, plan=plan, examples=examples).values())
    names = [str(path) for path in paths]
    return tuple(
        Comparison(
            path=path,
            timing=timing,
            verdict=verdict(timings[0], timing, names=(names[0], names[number]))
            if number
            else None,
        )
        for number, (path, timing) in enumerate(zip(paths, timings, strict=True))
    )


def parse_shapes(texts: Sequence[str]) -> dict[str, Shape]:
    """Return the shapes by input name that texts such as "x=1x3x224x224" spell.

    Raises:
        ArgumentError: a text is not of this form.

    >>> parse_shapes(["x=1x3x32x32"])
    {'x': (1, 3, 32, 32)}
    """
    shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        parts = sizes.split("x")
        if not name or not all(part.isdecimal() and int(part) for part in parts):
            raise ArgumentError(
                f"--shape {text!r} does not name an input and its sizes. "
                "Write --shape x=1x3x224x224.",
            )
        shapes[name] = tuple(map(int, parts))
    return shapes


def comparison_table(found: Sequence[Comparison]) -> Table:
    """Return the timings as a table for a terminal."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("Model", overflow="fold", min_width=10)
    for head in ("Median (ms)", "95 % interval", "Examples/s", "Speed-up"):
        table.add_column(head, justify="right", no_wrap=True)
    names = [item.path.name for item in found]
    for item in found:
        low, high = item.timing.interval_ms
        table.add_row(
            item.path.name if names.count(item.path.name) == 1 else str(item.path),
            significant_text(item.timing.median_ms),
            f"{significant_text(low)} to {significant_text(high)}",
            prefix_text(item.timing.throughput),
            _against(item.verdict),
        )
    return table


def comparison_json(found: Sequence[Comparison], runtime: str) -> dict[str, Any]:
    """Return the timings as JSON types."""
    return {
        "runtime": runtime,
        "models": [
            {
                "path": str(item.path),
                "median_ms": item.timing.median_ms,
                "interval_ms": list(item.timing.interval_ms),
                "p90_ms": item.timing.percentile_ms(0.9),
                "p99_ms": item.timing.percentile_ms(0.99),
                "first_ms": item.timing.first_ms,
                "examples": item.timing.examples,
                "throughput": item.timing.throughput,
                "settled": item.timing.settled,
                "speed_up": None if item.verdict is None else item.verdict.speed_up,
                "speed_up_interval": None
                if item.verdict is None
                else list(item.verdict.speed_up_interval),
                "decided": None if item.verdict is None else item.verdict.winner is not None,
            }
            for item in found
        ],
    }


def _against(result: Verdict | None) -> str:
    if result is None:
        return ""
    if result.winner is None:
        return f"{ratio_text(result.speed_up)}, not clear"
    word = "faster" if result.speed_up > 1 else "slower"
    return f"{ratio_text(max(result.speed_up, 1 / result.speed_up))} {word}"


def _inputs(
    session: Session,
    path: Path,
    shapes: Mapping[str, Shape],
    batch: int,
) -> dict[str, torch.Tensor]:
    assert isinstance(session, _Described)  # noqa: S101 (all sessions that read files are)
    names = [spec.name for spec in session.inputs]
    for name in shapes:
        if name not in names:
            raise ArgumentError(
                f"'{path}' has no input '{name}'; its inputs are {', '.join(names)}."
                f"{did_you_mean(name, names)}",
            )
    generator = torch.Generator().manual_seed(0)
    return {
        spec.name: _filled(spec, shapes.get(spec.name) or _settled(spec, path, batch), generator)
        for spec in session.inputs
    }


def _settled(spec: InputSpec, path: Path, batch: int) -> Shape:
    sizes = [batch if axis == 0 and size is None else size for axis, size in enumerate(spec.shape)]
    if None in sizes:
        spelt = "x".join("?" if size is None else str(size) for size in sizes)
        raise ArgumentError(
            f"Input '{spec.name}' of '{path}' has open axes: {spelt}. "
            f"Settle them with --shape {spec.name}=... and a number for each.",
        )
    return cast("Shape", tuple(sizes))


def _filled(spec: InputSpec, shape: Shape, generator: torch.Generator) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.zeros(shape, dtype=dtype)

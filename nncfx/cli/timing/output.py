"""The output of `nncfx benchmark`: a table, JSON, and the time of each layer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from nncfx.cli.timing.files import Comparison, Failure, Series
from nncfx.evidence.machine import machine_facts, version_facts
from nncfx.report.format import prefix_text, ratio_text, significant_text
from nncfx.runtimes import LayerTime, Profile, Verdict, call_words


def series_table(series: Series) -> Table:
    """Return the timings of one runtime and batch as a table for a terminal."""
    table = Table(
        box=box.SIMPLE_HEAD,
        title=_title(series),
        title_justify="left",
        caption=_caption(series),
        caption_justify="left",
    )
    table.add_column("Model", overflow="fold", min_width=10)
    for head in ("Median (ms)", "95 % interval", "Examples/s", "Speed-up"):
        table.add_column(head, justify="right", no_wrap=True)
    if with_energy := any(item.energy for item in series.comparisons):
        table.add_column("mJ", justify="right", no_wrap=True)
    names = [item.path.name for item in series.comparisons]
    for item in series.comparisons:
        low, high = item.timing.interval_ms
        table.add_row(
            item.path.name if names.count(item.path.name) == 1 else str(item.path),
            significant_text(item.timing.median_ms),
            f"{significant_text(low)} to {significant_text(high)}",
            prefix_text(item.timing.throughput),
            _against(item.verdict),
            *([_millijoules(item)] if with_energy else []),
        )
    return table


def series_json(found: Sequence[Series], failures: Sequence[Failure]) -> dict[str, Any]:
    """Return all measurements as JSON types, with the machine and the versions."""
    return {
        "machine": machine_facts(),
        "versions": version_facts(),
        "series": [
            {
                "runtime": series.runtime,
                "version": series.version,
                "batch": series.batch,
                "threads": series.threads,
                "clock": series.comparisons[0].timing.clock,
                "held_up": series.comparisons[0].timing.held_up,
                "byte_products": series.comparisons[0].timing.byte_products,
                "models": [_model_json(item) for item in series.comparisons],
            }
            for series in found
        ],
        "failures": [
            {"runtime": one.runtime, "batch": one.batch, "reason": str(one.error)}
            for one in failures
        ],
    }


def layer_table(profiles: Mapping[Path, Profile], call: str) -> Table:
    """Return the milliseconds of each layer, of several files side by side, slowest first.

    Layers that are only in later files follow at the end. With two files the last column is their
    ratio. A dash means that a file has no such layer. `call` describes the call, in words.
    """
    title = f"Time of each layer (ms), {call}"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("Layer", overflow="fold", min_width=12)
    table.add_column("Output", no_wrap=True)
    table.add_column("MACs", justify="right", no_wrap=True)
    for path in profiles:
        table.add_column(path.name, justify="right", overflow="fold")
    if len(profiles) == 2:  # noqa: PLR2004 (a pair has a ratio)
        table.add_column("Speed-up", justify="right", no_wrap=True)
    layers: dict[str, LayerTime] = {}
    for profile in profiles.values():
        for layer in sorted(profile.layers, key=lambda one: -one.ms):
            layers.setdefault(layer.module, layer)
    for layer in layers.values():
        times = [profile.ms_of(layer.module) for profile in profiles.values()]
        row = [
            layer.module or "(the model)",
            "x".join(map(str, layer.output_shape)),
            prefix_text(layer.macs) if layer.macs else "",
            *(significant_text(ms) if ms else "-" for ms in times),
        ]
        if len(times) == 2:  # noqa: PLR2004 (a pair has a ratio)
            row.append(ratio_text(times[0] / times[1]) if all(times) else "-")
        table.add_row(*row)
    return table


def _title(series: Series) -> str:
    return f"{series.runtime} {series.version}, {call_words(series.batch, series.threads)}"


def _caption(series: Series) -> str | None:
    """Return notes on the measurement for the reader, or None if all went well."""
    told = []
    timing = series.comparisons[0].timing
    if timing.clock == "cpu":
        held_up = f"{timing.held_up or 0:.0%}"
        told.append(f"CPU time of the one thread; other work held up {held_up} of the calls.")
    if any(item.energy for item in series.comparisons):
        told.append("mJ: energy of one example, including all else that the devices do.")
    restless = [item.path.name for item in series.comparisons if not item.timing.settled]
    if restless:
        told.append(f"Not settled after the warm-up: {', '.join(restless)}.")
    if timing.byte_products:
        told.append(f"Products of bytes: {timing.byte_products}.")
    return " ".join(told) or None


def _model_json(item: Comparison) -> dict[str, Any]:
    timing, against = item.timing, item.verdict
    return {
        "path": str(item.path),
        "median_ms": timing.median_ms,
        "interval_ms": list(timing.interval_ms),
        **{f"p{share}_ms": timing.percentile_ms(share / 100) for share in (50, 90, 95, 99)},
        "first_ms": timing.first_ms,
        "examples": timing.examples,
        "throughput": timing.throughput,
        "settled": timing.settled,
        "joules": item.energy.joules if item.energy else None,
        "watts": item.energy.watts if item.energy else None,
        "speed_up": against.speed_up if against else None,
        "speed_up_interval": list(against.speed_up_interval) if against else None,
        "decided": against.winner is not None if against else None,
    }


def _millijoules(item: Comparison) -> str:
    joules = item.energy.joules if item.energy else 0.0
    return significant_text(1000 * joules / item.timing.examples)


def _against(result: Verdict | None) -> str:
    if result is None:
        return ""
    if result.winner is None:
        return f"{ratio_text(result.speed_up)}, not clear"
    word = "faster" if result.speed_up > 1 else "slower"
    return f"{ratio_text(max(result.speed_up, 1 / result.speed_up))} {word}"

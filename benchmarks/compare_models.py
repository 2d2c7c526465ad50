"""Time two ONNX files against each other, in turns, and print a Markdown table.

python benchmarks/compare_models.py dense.onnx pruned.onnx --shape 1,3,224,224 --layers
"""

import argparse
from pathlib import Path

import torch

from nncfx.export import modules_in_file
from nncfx.runtimes import (
    RUNTIMES,
    BuildOptions,
    Timing,
    TimingPlan,
    compare_profiles,
    runtime_named,
    time_sessions,
    verdict,
)


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--shape", default="1,3,224,224", help="of the only input (float32)")
    parser.add_argument("--runtime", default="onnxruntime", choices=sorted(RUNTIMES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each file")
    parser.add_argument("--clock", default="auto", help="wall, cpu, or auto")
    parser.add_argument("--layers", action="store_true", help="also the time of each layer")
    chosen = parser.parse_args()
    inputs = torch.randn(*(int(size) for size in chosen.shape.split(",")))
    files = {"first": chosen.first, "second": chosen.second}
    print(timing_table(files, inputs, chosen))
    if chosen.layers:
        print(layer_table(files, inputs, chosen.threads))


def timing_table(files: dict[str, Path], inputs: torch.Tensor, chosen: argparse.Namespace) -> str:
    """Return the timings of both files and the verdict."""
    runtime = runtime_named(chosen.runtime)
    options = BuildOptions(threads=chosen.threads)
    with (
        runtime.build(files["first"], options) as first,
        runtime.build(files["second"], options) as second,
    ):
        sessions = {"first": first, "second": second}
        plan = TimingPlan(seconds=chosen.seconds, clock=chosen.clock)
        timings = time_sessions(sessions, inputs, plan=plan)
    names = (files["first"].name, files["second"].name)
    rows = [
        "| model | median ms | 95 % interval | p90 ms | first ms | examples/s | calls |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(timing_row(name, timing) for name, timing in zip(names, timings.values(), strict=True)),
        "",
        verdict(timings["first"], timings["second"], names=names).text,
        f"Times are {timings['first'].clock} time.",
        "",
    ]
    return "\n".join(rows)


def timing_row(name: str, timing: Timing) -> str:
    """Return one row of the table of timings."""
    low, high = timing.interval_ms
    p90 = timing.percentile_ms(0.9)
    return (
        f"| {name} | {timing.median_ms:.3f} | {low:.3f} to {high:.3f} | {p90:.3f} "
        f"| {timing.first_ms:.3f} | {timing.throughput:.0f} | {len(timing.samples_ms)} |"
    )


def layer_table(files: dict[str, Path], inputs: torch.Tensor, threads: int) -> str:
    """Return the time of each layer in both files, matched by module."""
    modules = {name: modules_in_file(path) for name, path in files.items()}
    profiles = compare_profiles(files, inputs, modules=modules, threads=threads)
    names = dict.fromkeys(
        layer.module for profile in profiles.values() for layer in profile.layers
    )
    rows = ["| layer | first ms | second ms | speed-up |", "|---|---:|---:|---:|"]
    for module in names:
        before, after = (profile.ms_of(module) for profile in profiles.values())
        ratio = f"{before / after:.2f}" if after else ""
        rows.append(f"| {module or '(forward)'} | {before:.3f} | {after:.3f} | {ratio} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()

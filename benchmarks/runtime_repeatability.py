"""How well the ratio of two builds of the same model repeats (bar: 1.00 within 0.02, 19 of 20).

python benchmarks/runtime_repeatability.py model.onnx --clock cpu --seconds 4

Both clocks are taken of the very same calls: `wall` is what a user waits, `cpu` is what the one
thread computes, which other work on the machine does not lengthen.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

from nncfx.runtimes import BuildOptions, TimingPlan, Verdict, compare, runtime_named, verdict

CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}


def main() -> None:
    """Build the model twice, time both in turns, again and again, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--shape", default="1,3,224,224", help="of the only input (float32)")
    parser.add_argument("--runtime", default="onnxruntime")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each build")
    parser.add_argument("--clock", choices=sorted(CLOCKS), action="append")
    chosen = parser.parse_args()
    inputs = torch.randn(*(int(size) for size in chosen.shape.split(",")))
    print("| clock | within 0.02 | largest | interval holds 1 | a winner | load |")
    print("|---|---:|---:|---:|---:|---:|")
    for clock in chosen.clock or sorted(CLOCKS):
        runs = [one_run(chosen, inputs, clock) for _ in track(range(chosen.runs), clock)]
        off = np.abs(np.array([run.speed_up for run in runs]) - 1)
        held = sum(run.speed_up_interval[0] <= 1 <= run.speed_up_interval[1] for run in runs)
        winners = sum(run.winner is not None for run in runs)
        print(
            f"| {clock} | {(off <= 0.02).sum()} of {len(runs)} | {off.max():.3f} "  # noqa: PLR2004 (the bar)
            f"| {held} | {winners} | {os.getloadavg()[1]:.1f} |",
            flush=True,
        )


def one_run(chosen: argparse.Namespace, inputs: torch.Tensor, clock: str) -> Verdict:
    """Return the verdict on two builds of the same file."""
    runtime, options = runtime_named(chosen.runtime), BuildOptions(threads=1)
    with (
        runtime.build(chosen.model, options) as first,
        runtime.build(chosen.model, options) as second,
    ):
        calls = {"first": first.bind(inputs), "second": second.bind(inputs)}
        plan = TimingPlan(seconds=chosen.seconds)
        timings = compare(calls, plan=plan, clock=CLOCKS[clock])
    return verdict(timings["first"], timings["second"])


if __name__ == "__main__":
    main()

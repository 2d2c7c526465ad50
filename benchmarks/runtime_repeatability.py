"""How well the ratio of two builds of the same model repeats (bar: 1.00 within 0.02, 19 of 20).

python benchmarks/runtime_repeatability.py model.onnx --clock auto --busy 2

`--busy` starts that many other processes which compute all the time, the ordinary noise of a
machine in use; they end with the measurement.
"""

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

from nncfx.runtimes import BuildOptions, Timing, TimingPlan, runtime_named, time_sessions, verdict

ALLOWED = 0.02
COMPUTES = "import torch\nx = torch.randn(400, 400)\nwhile True: x = torch.tanh(x @ x)"


def main() -> None:
    """Build the model twice, time both in turns, again and again, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--shape", default="1,3,224,224", help="of the only input (float32)")
    parser.add_argument("--runtime", default="onnxruntime")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each build")
    parser.add_argument("--clock", nargs="+", default=["auto"])
    parser.add_argument("--busy", type=int, default=0, help="other processes that compute")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    print("| model | clock | others | within 0.02 | largest | winners | by CPU time | load |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    with others(chosen.busy):
        for model in chosen.models:
            for clock in chosen.clock:
                told = [one_run(chosen, model, clock) for _ in track(range(chosen.runs), clock)]
                print(row(model, clock, chosen.busy, told), flush=True)


@contextlib.contextmanager
def others(count: int) -> Iterator[None]:
    """Let `count` processes of one thread compute meanwhile."""
    one_thread = dict(os.environ, OMP_NUM_THREADS="1")
    processes = [
        subprocess.Popen([sys.executable, "-c", COMPUTES], env=one_thread)  # noqa: S603 (ourselves)
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def one_run(chosen: argparse.Namespace, model: Path, clock: str) -> tuple[Timing, Timing]:
    """Return the timings of two builds of the same file, measured in turns."""
    inputs = torch.randn(*(int(size) for size in chosen.shape.split(",")))
    runtime, options = runtime_named(chosen.runtime), BuildOptions(threads=chosen.threads)
    plan = TimingPlan(seconds=chosen.seconds, clock=clock)
    with runtime.build(model, options) as first, runtime.build(model, options) as second:
        timings = time_sessions({"first": first, "second": second}, inputs, plan=plan)
    return timings["first"], timings["second"]


def row(model: Path, clock: str, busy: int, told: list[tuple[Timing, Timing]]) -> str:
    """Return the row of the table that sums up all runs."""
    verdicts = [verdict(*pair) for pair in told]
    off = np.array([abs(one.speed_up - 1) for one in verdicts])
    winners = sum(one.winner is not None for one in verdicts)
    by_cpu = sum(pair[0].clock == "cpu" for pair in told)
    return (
        f"| {model.stem} | {clock} | {busy} | {(off <= ALLOWED).sum()} of {len(off)} "
        f"| {off.max():.4f} | {winners} | {by_cpu} | {os.getloadavg()[0]:.1f} |"
    )


if __name__ == "__main__":
    main()

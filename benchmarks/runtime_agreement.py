"""Our median latency against what the runtimes' own tools say (bar: within 5 %).

python benchmarks/runtime_agreement.py model.onnx --pairs 5

OpenVINO: its benchmark_app, in a process of its own, in turns with our measurement. ONNX Runtime
has no such tool in its package: the duration of a whole run in its own profile.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

from nncfx.runtimes import BuildOptions, TimingPlan, measure, runtime_named
from nncfx.runtimes.onnx_runtime import OnnxRuntimeSession

MS = 1000.0


def main() -> None:
    """Measure both ways in turns and print a table of the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--shape", default="1,3,224,224", help="of the only input (float32)")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="for each measurement")
    chosen = parser.parse_args()
    print("| runtime | ours ms | its own ms | ratio (median of pairs) | load |")
    print("|---|---:|---:|---:|---:|")
    for name, own in (("openvino", benchmark_app), ("onnxruntime", profiled_runs)):
        pairs = [(ours(chosen, name), own(chosen)) for _ in track(range(chosen.pairs), name)]
        both = np.array(pairs)
        ratio = float(np.median(both[:, 0] / both[:, 1]))
        here, there = np.median(both, axis=0)
        print(
            f"| {name} | {here:.2f} | {there:.2f} | {ratio:.3f} | {os.getloadavg()[0]:.1f} |",
            flush=True,
        )


def ours(chosen: argparse.Namespace, name: str) -> float:
    """Return the median of one call, as nncfx measures it."""
    inputs = torch.randn(*sizes(chosen))
    with runtime_named(name).build(chosen.model, BuildOptions(threads=1)) as session:
        plan = TimingPlan(seconds=float(chosen.seconds))
        return measure(session.bind(inputs), plan=plan).median_ms


def benchmark_app(chosen: argparse.Namespace) -> float:
    """Return the median latency that OpenVINO's benchmark_app reports, same settings."""
    shape = f"[{','.join(map(str, sizes(chosen)))}]"
    command = [str(Path(sys.executable).with_name("benchmark_app")), "-m", str(chosen.model)]
    command += ["-api", "sync", "-hint", "none", "-nthreads", "1", "-nireq", "1", "-nstreams", "1"]
    command += ["-infer_precision", "f32", "-t", str(chosen.seconds)]
    command += ["-data_shape", shape, "-shape", shape]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 (our own tool)
    found = re.search(r"Median:\s+([\d.]+) ms", done.stdout)
    if found is None:
        raise SystemExit(f"benchmark_app says no median:\n{done.stdout}")
    return float(found.group(1))


def profiled_runs(chosen: argparse.Namespace) -> float:
    """Return the median duration of a run in ONNX Runtime's own profile."""
    options = BuildOptions(threads=1, profile=True)
    session = runtime_named("onnxruntime").build(chosen.model, options)
    assert isinstance(session, OnnxRuntimeSession)  # noqa: S101 (named above)
    with session:
        measure(
            session.bind(torch.randn(*sizes(chosen))),
            plan=TimingPlan(seconds=float(chosen.seconds)),
        )
        events = json.loads(session.finish_profile())
    runs = [event["dur"] / MS for event in events if event.get("name") == "model_run"]
    return float(np.median(runs[5:]))


def sizes(chosen: argparse.Namespace) -> list[int]:
    """Return the shape of the input."""
    return [int(size) for size in chosen.shape.split(",")]


if __name__ == "__main__":
    main()

"""Our median latency against what the runtimes' own tools say (bar: within 5 %).

python benchmarks/runtime_agreement.py a.onnx b.onnx --pairs 5

OpenVINO: its benchmark_app, in a process of its own, in turns with our measurement. ONNX Runtime
has its perf test only in its source tree: its own profile tells the duration of the very calls
that we time, so both pay for the profile.
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

from nncfx.runtimes import BuildOptions, Session, TimingPlan, measure, runtime_named
from nncfx.runtimes.backends.onnx_runtime import OnnxRuntimeSession

MS = 1000.0
WARM_UP = 10


def main() -> None:
    """Measure both ways in turns and print a table of the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--shape", default="1,3,224,224", help="of the only input (float32)")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="for each measurement")
    chosen = parser.parse_args()
    print("| model | runtime | ours ms | its own ms | ratio (median of pairs) | load |")
    print("|---|---|---:|---:|---:|---:|")
    ways = {"openvino": with_benchmark_app, "onnxruntime": with_profile}
    for model, name in itertools.product(chosen.models, ways):
        rounds = track(range(chosen.pairs), f"{model.stem}, {name}")
        pairs = [ways[name](chosen, model) for _ in rounds]
        both = np.array(pairs)
        ratio = float(np.median(both[:, 0] / both[:, 1]))
        here, there = np.median(both, axis=0)
        cells = f"| {model.stem} | {name} | {here:.2f} | {there:.2f} | {ratio:.3f} "
        print(f"{cells}| {os.getloadavg()[0]:.1f} |", flush=True)


def with_benchmark_app(chosen: argparse.Namespace, model: Path) -> tuple[float, float]:
    """Return our median in OpenVINO, and what benchmark_app says with the same settings."""
    options = BuildOptions(threads=1)
    with runtime_named("openvino").build(model, options) as session:
        ours = measured(chosen, session)
    shape = f"[{','.join(map(str, sizes(chosen)))}]"
    command = [str(Path(sys.executable).with_name("benchmark_app")), "-m", str(model)]
    command += ["-api", "sync", "-hint", "none", "-nthreads", "1", "-nireq", "1", "-nstreams", "1"]
    command += ["-infer_precision", "f32", "-t", str(chosen.seconds)]
    command += ["-data_shape", shape, "-shape", shape]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 (our own tool)
    found = re.search(r"Median:\s+([\d.]+) ms", done.stdout)
    if found is None:
        raise SystemExit(f"benchmark_app says no median:\n{done.stdout}")
    return ours, float(found.group(1))


def with_profile(chosen: argparse.Namespace, model: Path) -> tuple[float, float]:
    """Return our median in ONNX Runtime, and its own of the same calls."""
    options = BuildOptions(threads=1, profile=True)
    session = runtime_named("onnxruntime").build(model, options)
    assert isinstance(session, OnnxRuntimeSession)  # noqa: S101 (named above)
    with session:
        ours = measured(chosen, session)
        events = json.loads(session.finish_profile())
    runs = [event["dur"] / MS for event in events if event.get("name") == "model_run"]
    return ours, float(np.median(runs[WARM_UP:]))


def measured(chosen: argparse.Namespace, session: Session) -> float:
    """Return the median of one call, as nncfx measures it."""
    plan = TimingPlan(seconds=float(chosen.seconds))
    return measure(session.bind(torch.randn(*sizes(chosen))), plan=plan).median_ms


def sizes(chosen: argparse.Namespace) -> list[int]:
    """Return the shape of the input."""
    return [int(size) for size in chosen.shape.split(",")]


if __name__ == "__main__":
    main()

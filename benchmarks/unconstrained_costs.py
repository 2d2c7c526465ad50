"""Measure what selecting channels costs in a runtime: the numbers of nncfx.export.COSTS.

Two convolutions stand one after the other; between them the second reads all channels, a slice
or a gather of half of them. Each number is the difference of two medians of processor time, run
in turns; two sizes of image separate the cost per call from the cost per number.

    python benchmarks/unconstrained_costs.py torch onnxruntime
"""

import argparse
import importlib
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import torch
from torch import nn

from nncfx.export import export_onnx
from nncfx.export.channel_selection import select_before

CHANNELS: Final = 128
SMALL, LARGE = 7, 56

Subjects: TypeAlias = Mapping[str, tuple[nn.Module, torch.Tensor]]
Runs: TypeAlias = dict[str, Callable[[], object]]


def pair(kind: str, size: int, width: int) -> tuple[nn.Module, torch.Tensor]:
    """Return two convolutions, the second behind a selection, and their input."""
    torch.manual_seed(0)
    second = nn.Conv2d(width, 32, 1, bias=False)
    if kind == "slice":
        select_before(second, -3, range(CHANNELS // 4, CHANNELS // 4 + width))
    elif kind == "gather":
        positions = torch.randperm(CHANNELS)[:width].sort().values.tolist()
        select_before(second, -3, positions)
    first = nn.Conv2d(32, width if kind == "all" else CHANNELS, 1, bias=False)
    model = nn.Sequential(first, nn.ReLU(), second)
    return model.eval(), torch.randn(1, 32, size, size)


def torch_runs(
    subjects: Mapping[str, tuple[nn.Module, torch.Tensor]],
) -> dict[str, Callable[[], object]]:
    """Return what runs each model, traced."""
    with torch.no_grad():
        traced = {
            key: (torch.jit.trace(model, data), data) for key, (model, data) in subjects.items()
        }
    return {key: lambda m=model, d=data: m(d) for key, (model, data) in traced.items()}


def onnxruntime_runs(subjects: Subjects) -> Runs:
    """Return what runs each model in ONNX Runtime on one thread."""
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    runs: Runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (key, (model, data)) in enumerate(subjects.items()):
            path = Path(folder) / f"{number}.onnx"
            export_onnx(model, path, data, dynamic_batch=False)
            session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
            feed = {session.get_inputs()[0].name: data.numpy()}
            runs[key] = lambda session=session, feed=feed: session.run(None, feed)
    return runs


def medians(runs: Runs, rounds: int) -> dict[str, float]:
    """Return the median processor nanoseconds of each, run in turns."""
    times: dict[str, list[float]] = {key: [] for key in runs}
    for _ in range(rounds):
        for key, run in runs.items():
            began = time.process_time_ns()
            for _ in range(10):
                run()
            times[key].append((time.process_time_ns() - began) / 10)
    return {key: statistics.median(one) for key, one in times.items()}


def fit(small: float, large: float, numbers: Sequence[int]) -> tuple[float, float]:
    """Return nanoseconds per call and per number, from differences at two counts of numbers."""
    each = (large - small) / (numbers[1] - numbers[0])
    return max(small - each * numbers[0], 0.0), max(each, 0.0)


def report(name: str, rounds: int) -> None:
    """Print a row."""
    half = CHANNELS // 2
    subjects = {
        f"{kind} {size}": pair(kind, size, half)
        for kind in ("slice", "gather")
        for size in (SMALL, LARGE)
    }
    for size in (SMALL, LARGE):
        for width, name_of in ((CHANNELS, "first"), (half, "first half")):
            model, data = pair("all" if width == half else "wide", size, width)
            subjects[f"{name_of} {size}"] = (nn.Sequential(*list(model)[:2]), data)
        subjects[f"all {size}"] = pair("all", size, half)
    runs = (torch_runs if name == "torch" else onnxruntime_runs)(subjects)
    with torch.no_grad():
        found = medians(runs, rounds)
    numbers = [half * size**2 for size in (SMALL, LARGE)]
    macs = [32 * count for count in numbers]
    second = {size: found[f"all {size}"] - found[f"first half {size}"] for size in (SMALL, LARGE)}
    cost = {}
    for kind in ("slice", "gather"):
        small, large = (
            found[f"{kind} {size}"] - found[f"first {size}"] - second[size]
            for size in (SMALL, LARGE)
        )
        cost[kind] = fit(small, large, numbers)
    mac = (second[LARGE] - second[SMALL]) / (macs[1] - macs[0])
    print(
        f"| {name} | {cost['slice'][0]:.0f} | {cost['slice'][1]:.2f} | {cost['gather'][0]:.0f} "
        f"| {cost['gather'][1]:.2f} | {mac:.3f} |",
        flush=True,
    )


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runtimes", nargs="+", choices=["torch", "onnxruntime"])
    parser.add_argument("--rounds", type=int, default=200, help="runs of each, in turns")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print("| runtime | slice ns | per number | gather ns | per number | per MAC |")
    print("|---|---|---|---|---|---|")
    for name in options.runtimes:
        report(name, options.rounds)


if __name__ == "__main__":
    main()

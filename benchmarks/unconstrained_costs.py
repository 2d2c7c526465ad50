"""Measure what selecting channels costs in a runtime: the numbers of nncfx.targets.TARGETS.

Two convolutions stand one after the other; between them the second reads all channels, a slice
or a gather of a quarter or three quarters of them. What selecting costs is the difference of
medians of processor time, run in turns. Two widths separate the cost per number that is read from
that of the number it is read from; two sizes of image separate both from the cost per call.

    python benchmarks/unconstrained_costs.py torch onnxruntime openvino
"""

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import torch
from torch import nn
from unconstrained_latency import FILE_RUNS

from nncfx.export import export_onnx
from nncfx.reorder.selection import select_before

CHANNELS: Final = 128
WIDTHS: Final = (32, 96)
OUTPUTS: Final = 32
SMALL, LARGE = 7, 56

Subjects: TypeAlias = Mapping[str, tuple[nn.Module, torch.Tensor]]
Runs: TypeAlias = dict[str, Callable[[], object]]


def pair(kind: str, size: int, width: int) -> tuple[nn.Module, torch.Tensor]:
    """Return two convolutions, the second behind a selection, and their input."""
    torch.manual_seed(0)
    second = nn.Conv2d(width, OUTPUTS, 1, bias=False)
    if kind == "slice":
        select_before(second, -3, range(16, 16 + width))
    elif kind == "gather":
        positions = torch.randperm(CHANNELS)[:width].sort().values.tolist()
        select_before(second, -3, positions)
    first = nn.Conv2d(OUTPUTS, width if kind == "all" else CHANNELS, 1, bias=False)
    model = nn.Sequential(first, nn.ReLU(), second)
    return model.eval(), torch.randn(1, OUTPUTS, size, size)


def torch_runs(
    subjects: Mapping[str, tuple[nn.Module, torch.Tensor]],
) -> dict[str, Callable[[], object]]:
    """Return what runs each model, traced."""
    with torch.no_grad():
        traced = {
            key: (torch.jit.trace(model, data), data) for key, (model, data) in subjects.items()
        }
    return {key: lambda m=model, d=data: m(d) for key, (model, data) in traced.items()}


def file_runs(subjects: Subjects, target: str) -> Runs:
    """Return what runs each model, exported for a runtime."""
    runs: Runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (key, (model, data)) in enumerate(subjects.items()):
            path = Path(folder) / f"{number}.onnx"
            export_onnx(model, path, data, target, dynamic_batch=False)
            runs[key] = FILE_RUNS[target](path, data)
    return runs


LOADERS: Final[Mapping[str, Callable[[Subjects], Runs]]] = {
    "torch": torch_runs,
    "onnxruntime": partial(file_runs, target="onnxruntime"),
    "openvino": partial(file_runs, target="openvino"),
}


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


def report(name: str, rounds: int) -> None:
    """Print a row."""
    subjects: dict[str, tuple[nn.Module, torch.Tensor]] = {}
    for size in (SMALL, LARGE):
        for width in WIDTHS:
            for kind in ("slice", "gather", "all"):
                subjects[f"{kind} {width} {size}"] = pair(kind, size, width)
            model, data = subjects[f"all {width} {size}"]
            subjects[f"first {width} {size}"] = (nn.Sequential(*list(model)[:2]), data)
        model, data = pair("all", size, CHANNELS)
        subjects[f"first {CHANNELS} {size}"] = (nn.Sequential(*list(model)[:2]), data)
    runs = LOADERS[name](subjects)
    with torch.no_grad():
        found = medians(runs, rounds)

    def second(width: int, size: int) -> float:
        return found[f"all {width} {size}"] - found[f"first {width} {size}"]

    macs = OUTPUTS * (WIDTHS[1] * LARGE**2 - WIDTHS[0] * SMALL**2)
    columns = [f"{(second(WIDTHS[1], LARGE) - second(WIDTHS[0], SMALL)) / macs:.4f}"]
    for kind in ("slice", "gather"):
        extra = {
            (width, size): found[f"{kind} {width} {size}"]
            - found[f"first {CHANNELS} {size}"]
            - second(width, size)
            for width in WIDTHS
            for size in (SMALL, LARGE)
        }
        columns += [f"{one:.3g}" for one in fit(extra)]
    print(f"| {name} | {' | '.join(columns)} |", flush=True)


def fit(extra: Mapping[tuple[int, int], float]) -> tuple[float, float, float]:
    """Return nanoseconds per call, per number that is read, and per number of the source.

    Args:
        extra: (channels read, height) to the nanoseconds of selecting them.
    """
    few, many = ((width, LARGE) for width in WIDTHS)
    each = max(extra[many] - extra[few], 0) / ((WIDTHS[1] - WIDTHS[0]) * LARGE**2)
    call = max(sum(extra[width, SMALL] for width in WIDTHS) / len(WIDTHS), 0)
    rest = sum(extra[width, LARGE] - each * width * LARGE**2 for width in WIDTHS) / len(WIDTHS)
    return call, each, max(rest - call, 0) / (CHANNELS * LARGE**2)


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runtimes", nargs="+", choices=LOADERS)
    parser.add_argument("--rounds", type=int, default=100, help="runs of each, in turns")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print("| runtime | MAC ns | slice ns | per number | of the source | gather ns ", end="")
    print("| per number | of the source |\n|---|---|---|---|---|---|---|---|")
    for name in options.runtimes:
        report(name, options.rounds)


if __name__ == "__main__":
    main()

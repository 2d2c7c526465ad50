"""Prune a torchvision model globally to half of its channels, with and without aligned widths.

Random weights, ranking by the L1 norm of producers over the mean of their set; each model is
thinned, exported and timed in ONNX Runtime on one thread, in turns, by CPU time.

    PYTHONPATH=../shared/tools python benchmarks/aligned_widths.py mobilenet_v2 resnet50
"""

import argparse
import copy
import importlib
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import nn

from nncfx import export_onnx
from nncfx.graph.channels import Channels
from nncfx.schemes import group_scores, keep_groups, zero_groups
from nncfx.targets import TARGETS, Alignment
from nncfx.thinning import prunable_channels, thin

WIDTHS: dict[str, int | Alignment] = {
    "any": 1,
    "multiples of 8": 8,
    "default": TARGETS["onnxruntime"].alignment,
}


def thinned(
    model: nn.Module, image: torch.Tensor, channels: Channels, align: int | Alignment
) -> nn.Module:
    """Return a copy of half as many channels."""
    model = copy.deepcopy(model)
    weights = dict(model.named_parameters(remove_duplicate=False))
    scores = group_scores(channels, weights, "l1norm", normalize=True)
    keep = keep_groups(scores, 0.5, align=align)
    zero_groups(channels, keep, weights)
    return thin(model, image, channels=channels).model


def median_ms(files: dict[str, Path], image: torch.Tensor, rounds: int) -> dict[str, float]:
    """Return the median CPU time of each file, all taken in turns."""
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = {name: runtime.InferenceSession(path, options) for name, path in files.items()}
    times: dict[str, list[float]] = {name: [] for name in files}
    console = Console(stderr=True)
    for _ in track(range(rounds), "timing", transient=True, console=console):
        for name, session in sessions.items():
            began = time.process_time()
            session.run(None, {session.get_inputs()[0].name: image.numpy()})
            times[name].append(time.process_time() - began)
    return {name: 1000 * statistics.median(each) for name, each in times.items()}


def main() -> None:
    """Measure the chosen models and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    importlib.import_module("torchvision_on_cpu")
    zoo: Any = importlib.import_module("torchvision.models")
    image = torch.randn(1, 3, 224, 224)
    print("| model | widths | parameters | CPU ms | |\n|---|---|---:|---:|---:|")
    for name in options.models:
        model = getattr(zoo, name)().eval()
        channels = prunable_channels(model, image)
        models = {"dense": model}
        models |= {key: thinned(model, image, channels, align) for key, align in WIDTHS.items()}
        with tempfile.TemporaryDirectory() as folder:
            files = {key: Path(folder) / f"{key}.onnx" for key in models}
            for key, one in models.items():
                export_onnx(one, files[key], image)
            times = median_ms(files, image, options.rounds)
        for key, one in models.items():
            count = sum(parameter.numel() for parameter in one.parameters())
            ratio = times["dense"] / times[key]
            print(f"| {name} | {key} | {count:,} | {times[key]:.2f} | {ratio:.2f}x |", flush=True)


if __name__ == "__main__":
    main()

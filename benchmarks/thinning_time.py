"""Measure what thinning takes: analysis, masks, removal and proof, against one training step.

CPU time on one thread; half of all channel groups go globally by L1. Of our time the proof, a
forward of both models, is told as well. With Torch-Pruning 1.6.1
importable, its whole work (building the groups, scoring, pruning) stands beside ours; runs take
turns and the best of each counts.

    PYTHONPATH=../shared/tools:FOLDER python benchmarks/thinning_time.py resnet50 timm:resnest14d
"""

import argparse
import copy
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from thin_coverage import scattered, step
from torch import Tensor, nn

from nncfx.channels import analyze_channels
from nncfx.schemes import group_scores, keep_groups, zero_groups
from nncfx.thinning import thin
from nncfx.thinning.verification import verify


def thin_with_nncfx(model: nn.Module, inputs: Tensor) -> Callable[[], float]:
    """Analyse, mask, remove and prove; return what proves it once more."""
    channels = analyze_channels(model, inputs)
    weights = dict(model.named_parameters(remove_duplicate=False))
    keep = keep_groups(group_scores(channels, weights, "l1norm", normalize=True), 0.5)
    zero_groups(channels, keep, weights)
    result = thin(model, inputs, channels=channels)
    return lambda: verify(model, result.model, inputs, None)


def thin_with_torch_pruning(model: nn.Module, inputs: Tensor) -> None:
    """Build its groups and prune; the classifier has to be named."""
    pruning: Any = importlib.import_module("torch_pruning")
    last = [one for one in model.modules() if isinstance(one, nn.Linear)][-1]
    importance = pruning.importance.GroupMagnitudeImportance(p=1)
    pruning.pruner.BasePruner(
        model,
        inputs,
        importance=importance,
        global_pruning=True,
        pruning_ratio=0.5,
        ignored_layers=[last],
    ).step()


def seconds(work: Callable[[nn.Module, Tensor], Any], model: nn.Module, inputs: Tensor) -> float:
    """Return the CPU seconds of `work` on a copy of `model`."""
    copied = copy.deepcopy(model)
    began = time.process_time()
    work(copied, inputs)
    return time.process_time() - began


def proof(model: nn.Module, inputs: Tensor) -> float:
    """Return the CPU seconds of the proof alone."""
    again = thin_with_nncfx(copy.deepcopy(model), inputs)
    began = time.process_time()
    again()
    return time.process_time() - began


def network(name: str) -> nn.Module:
    """Return the network of torchvision, or of timm where the name starts with `timm:`."""
    library, _, own = name.rpartition(":")
    if library:
        made: nn.Module = importlib.import_module(library).create_model(own)
        return made
    zoo: Any = importlib.import_module("torchvision.models")
    found: nn.Module = zoo.get_model(name, weights=None)
    return found


def main() -> None:
    """Print one row per model as a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", help="of torchvision, or timm:NAME")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="leave Torch-Pruning out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    importlib.import_module("torchvision_on_cpu")
    works = [step, thin_with_nncfx]
    if importlib.util.find_spec("torch_pruning") and not options.alone:
        works.append(thin_with_torch_pruning)
    print(
        "| model | batch | forward + backward | nncfx | | of it proof | Torch-Pruning "
        "| ours without proof, over theirs | with proof |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name in options.models:
        torch.manual_seed(0)
        model = scattered(network(name)).eval()
        inputs = torch.randn(options.batch, 3, 224, 224)
        turns = []
        for turn in range(options.turns):
            print(f"{name}: turn {turn + 1} of {options.turns}", file=sys.stderr)
            turns.append([seconds(work, model, inputs) for work in works])
        best = [min(column) for column in zip(*turns, strict=True)]
        proves = min(proof(model, inputs) for _ in range(options.turns))
        theirs = "not run | |"
        if len(best) > len(works[:2]):
            shares = (best[1] - proves) / best[2], best[1] / best[2]
            theirs = f"{best[2]:.3f} | {shares[0]:.2f} | {shares[1]:.2f} |"
        row = f"| {name} | {options.batch} | {best[0]:.3f} | {best[1]:.3f} |"
        print(f"{row} {best[1] / best[0]:.2f}x | {proves:.3f} | {theirs}", flush=True)


if __name__ == "__main__":
    main()

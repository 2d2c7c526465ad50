"""Prune pretrained CIFAR-10 networks to half of their MACs, by five importances.

Channels are constrained and every width is allowed, so that budgets compare. The table has the
accuracy before and after a fine-tuning, and the latency of the thinned model in ONNX Runtime (one
thread, CPU time, in turns with the dense one). On a GPU the full schedule is one command:

    python benchmarks/prune_cifar10.py --data ../shared/data --steps 39100 --device cuda
"""

import argparse
import copy
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import onnxruntime
import torch
from model_files import NETWORKS
from pretrained import Pretrained
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F

from nncfx import export_onnx
from nncfx.controllers.weight_costs import WeightCosts
from nncfx.graph.channels import Channels
from nncfx.schemes import (
    group_masks,
    group_scores,
    keep_groups,
    norm_scale_scores,
    taylor_scores,
)
from nncfx.thinning import prunable_channels, thin
from nncfx.tracing import trace

IMAGE: Final = torch.zeros(1, 3, 32, 32)
Weights = Mapping[str, Tensor]
Scores = Callable[[Channels, Weights, Weights], list[Tensor]]
IMPORTANCES: Final[Mapping[str, Scores]] = {
    "L1": lambda channels, weights, _: group_scores(channels, weights, "l1norm"),
    "L2": lambda channels, weights, _: group_scores(channels, weights, "l2norm"),
    "geometric median": lambda channels, weights, _: group_scores(
        channels, weights, "geometric_median"
    ),
    "norm scale": lambda channels, weights, _: norm_scale_scores(channels, weights),
    "Taylor": taylor_scores,
}


class Task:
    """A pretrained network with its data on a device.

    Attributes:
        model: The dense network, in evaluation mode.
    """

    def __init__(self, network: Pretrained, options: argparse.Namespace) -> None:
        """Load weights and images."""
        device = torch.device(options.device)
        self.model = network.load(options.data).to(device)
        test, labels = network.test(options.data)
        self._test = (test[: options.images].to(device), labels[: options.images].to(device))
        images, labels = network.train(options.data, options.train)
        self._train = (images.to(device), labels.to(device))
        self._options = options

    def accuracy(self, model: nn.Module) -> float:
        """Return the percentage of test images that `model` gets right."""
        images, labels = self._test
        model.eval()
        with torch.no_grad():
            found = torch.cat([model(part).argmax(1) for part in images.split(250)])
        return 100 * float((found == labels).float().mean())

    def gradients(self) -> dict[str, Tensor]:
        """Return the gradients of the dense model's loss over 500 training images."""
        images, labels = (one[:500] for one in self._train)
        self.model.zero_grad()
        F.cross_entropy(self.model(images), labels).backward()
        return {
            name: one.grad for name, one in self.model.named_parameters() if one.grad is not None
        }

    def fine_tune(self, model: nn.Module, title: str) -> None:
        """Train by SGD: momentum 0.9, weight decay 5e-4, cosine, shifts and flips."""
        images, labels = self._train
        steps = self._options.steps
        optimizer = torch.optim.SGD(
            model.parameters(), lr=self._options.lr, momentum=0.9, weight_decay=5e-4
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
        generator = torch.Generator().manual_seed(0)
        model.train()
        console = Console(stderr=True)
        for _ in track(range(steps), title, transient=True, console=console):
            chosen = torch.randint(len(images), (self._options.batch,), generator=generator)
            x, y = (one[chosen.to(one.device)] for one in (images, labels))
            row, column, flip = torch.randint(9, (3,), generator=generator).tolist()
            x = F.pad(x, (4, 4, 4, 4))[..., row : row + 32, column : column + 32]
            loss = F.cross_entropy(model(x.flip(3) if flip % 2 else x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


def pruned(model: nn.Module, channels: Channels, scores: list[Tensor], level: float) -> nn.Module:
    """Return `model` thinned so that at least `level` of its MACs go, and hardly more."""
    weights = dict(model.named_parameters(remove_duplicate=False))
    costs = WeightCosts.in_macs(model, trace(model, IMAGE.to(next(model.parameters()).device)))

    def masks(groups: float) -> dict[str, Tensor]:
        return group_masks(channels, keep_groups(scores, groups), weights)

    low, high = 0.0, 0.99
    for _ in range(12):
        middle = (low + high) / 2
        enough = costs.saved(masks(middle)) >= level
        low, high = (low, middle) if enough else (middle, high)
    masked = copy.deepcopy(model)
    with torch.no_grad():
        for name, mask in masks(high).items():
            masked.get_parameter(name).masked_fill_(~mask, 0)
    image = IMAGE.to(next(model.parameters()).device)
    return thin(masked, image, channels=channels).model


def latencies(models: Mapping[str, nn.Module], turns: int) -> dict[str, float]:
    """Return the median CPU ms of one image in ONNX Runtime, all models in turns."""
    settings: Any = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    times: dict[str, list[float]] = {name: [] for name in models}
    with tempfile.TemporaryDirectory() as folder:
        sessions = {}
        for number, (name, model) in enumerate(models.items()):
            path = Path(folder) / f"{number}.onnx"
            export_onnx(copy.deepcopy(model).cpu().eval(), path, IMAGE)
            sessions[name] = onnxruntime.InferenceSession(path, settings)
        for _ in range(turns):
            for name, session in sessions.items():
                began = time.process_time()
                session.run(None, {session.get_inputs()[0].name: IMAGE.numpy()})
                times[name].append(1000 * (time.process_time() - began))
    return {name: statistics.median(each) for name, each in times.items()}


def measure(name: str, options: argparse.Namespace) -> None:
    """Print the rows of one network."""
    torch.manual_seed(0)
    task = Task(NETWORKS[name], options)
    channels = prunable_channels(task.model, IMAGE.to(options.device))
    weights = dict(task.model.named_parameters(remove_duplicate=False))
    gradients = task.gradients()
    count = sum(one.numel() for one in task.model.parameters())
    print(f"| {name} | dense | | {task.accuracy(task.model):.1f} | {count:,} | | |", flush=True)
    for importance, score in IMPORTANCES.items():
        scores = score(channels, weights, gradients)
        model = pruned(task.model, channels, scores, options.level)
        before = task.accuracy(model)
        task.fine_tune(model, f"{name}, {importance}")
        times = latencies({"dense": task.model, importance: model}, options.turns)
        count = sum(one.numel() for one in model.parameters())
        figures = (
            f"{before:.1f} | {task.accuracy(model):.1f} | {count:,} | {times[importance]:.2f}"
        )
        ratio = times["dense"] / times[importance]
        print(f"| {name} | {importance} | {figures} | {ratio:.2f}x |", flush=True)


def main() -> None:
    """Print one row per network and importance as a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--level", type=float, default=0.5, help="fraction of the MACs that goes")
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps of fine-tuning")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--train", type=int, help="use so many training images, not all")
    parser.add_argument("--images", type=int, default=10000, help="test images")
    parser.add_argument("--turns", type=int, default=100, help="runs of each model for latency")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | importance | pruned, % | tuned, % | parameters | CPU ms | speed |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for name in options.networks:
        measure(name, options)


if __name__ == "__main__":
    main()

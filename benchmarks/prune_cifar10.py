"""Prune pretrained CIFAR-10 networks to half of their MACs, by five importances.

Channels are constrained, residual streams stay whole unless `--streams` is given, and every width
is allowed, so that budgets compare. A table has the accuracy before and after a fine-tuning; rows
are kept in a journal and not computed again, and beside it lies where the training of a row
stands. With `--latency` the thinned models, untrained, are timed in ONNX Runtime instead (one
thread, in turns with the dense one). On a GPU the full schedule, 100 epochs for each of ten rows,
is one command; killed and given again it goes on where it was:

    python benchmarks/prune_cifar10.py --data ../shared/data --steps 39100 --lr 0.05 \
        --device cuda --journal full.jsonl
"""

import argparse
import copy
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import onnxruntime
import torch
from model_files import NETWORKS
from pretrained import Pretrained
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn
from torch.nn import functional as F
from training_checkpoint import TrainingCheckpoint

from nncfx import export_onnx
from nncfx.controllers.masks.costs import WeightCosts
from nncfx.graph import macs
from nncfx.graph.channels import Channels, GroupSet, Role
from nncfx.schemes import group_masks, group_scores, keep_groups, norm_scale_scores, taylor_scores
from nncfx.thinning import ThinRecipe, ThinResult, prunable_channels, rebuild, thin
from nncfx.tracing import trace

IMAGE: Final = torch.zeros(1, 3, 32, 32)
MATTERS: Final = ("level", "streams", "scope", "steps", "batch", "lr", "train", "images")
"""Options of which any other value makes another row."""

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
        # half the time of a step on a CPU
        self.model = network.load(options.data).to(device, memory_format=torch.channels_last)
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

    def fine_tune(self, model: nn.Module, checkpoint: TrainingCheckpoint, title: str) -> None:
        """Train by SGD: momentum 0.9, weight decay 5e-4, cosine, shifts and flips."""
        images, labels = self._train
        steps = self._options.steps
        optimizer = torch.optim.SGD(
            model.parameters(), lr=self._options.lr, momentum=0.9, weight_decay=5e-4
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
        generator = torch.Generator().manual_seed(0)
        model.to(memory_format=torch.channels_last).train()
        parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
        checkpoint.restore(parts, generator)
        for step in shown(checkpoint.step, steps, title):
            chosen = torch.randint(len(images), (self._options.batch,), generator=generator)
            x, y = (one[chosen.to(one.device)] for one in (images, labels))
            loss = F.cross_entropy(model(shifted(x, generator)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            checkpoint.save(step + 1, parts, generator)


def shown(begin: int, end: int, title: str) -> Iterator[int]:
    """Count from `begin` to `end`, behind a bar on standard error."""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(title, total=end, completed=begin)
        for number in range(begin, end):
            yield number
            progress.advance(bar)


def shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return `images`, each moved by up to 4 pixels and flipped at random."""
    rows, columns, flips = torch.randint(9, (3, len(images)), generator=generator)
    windows = F.pad(images, (4, 4, 4, 4)).unfold(2, 32, 1).unfold(3, 32, 1)
    moved = windows[torch.arange(len(images)), :, rows, columns]
    mirrored = (flips % 2 == 1).view(-1, 1, 1, 1).to(images.device)
    return torch.where(mirrored, moved.flip(3), moved)


def without_streams(channels: Channels) -> Channels:
    """Return the channels that one layer alone creates; sums of several layers are left out."""

    def layers(group_set: GroupSet) -> set[str]:
        return {one.parameter.rpartition(".")[0] for one in group_set.by_role(Role.PRODUCER)}

    return Channels(tuple(one for one in channels if len(layers(one)) == 1))


class Thinned:
    """Gives thinned copies of a task's network, by importance.

    Attributes:
        image: One image, all zeros.
    """

    def __init__(self, task: Task, options: argparse.Namespace) -> None:
        """Analyse the network once for all importances."""
        self.image = IMAGE.to(options.device)
        self._model, self._options = task.model, options
        channels = prunable_channels(task.model, self.image)
        self._channels = channels if options.streams else without_streams(channels)
        self._weights = dict(task.model.named_parameters(remove_duplicate=False))
        self._gradients = task.gradients()
        self._costs = WeightCosts.in_macs(task.model, trace(task.model, self.image))

    def by(self, importance: str) -> ThinResult:
        """Return the network without at least `--level` of its MACs, and hardly more."""
        scores = IMPORTANCES[importance](self._channels, self._weights, self._gradients)

        def masks(groups: float) -> dict[str, Tensor]:
            keep = keep_groups(scores, groups, scope=self._options.scope)
            return group_masks(self._channels, keep, self._weights)

        low, high = 0.0, 0.99
        for _ in range(12):
            middle = (low + high) / 2
            enough = self._costs.saved(masks(middle)) >= self._options.level
            low, high = (low, middle) if enough else (middle, high)
        masked = copy.deepcopy(self._model)
        with torch.no_grad():
            for name, mask in masks(high).items():
                masked.get_parameter(name).masked_fill_(~mask, 0)
        return thin(masked, self.image, channels=self._channels)


def latencies(models: Mapping[str, nn.Module], turns: int) -> dict[str, float]:
    """Return the median CPU ms of one image in ONNX Runtime, all models in turns."""
    settings: Any = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    found: dict[str, list[float]] = {name: [] for name in models}
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
                found[name].append(1000 * (time.process_time() - began))
    return {name: statistics.median(each) for name, each in found.items()}


def journaled(path: Path | None) -> list[dict[str, Any]]:
    """Return the rows that a journal has."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def accuracies(name: str, options: argparse.Namespace) -> None:
    """Print the accuracies of one network."""
    known = journaled(options.journal)
    task = Task(NETWORKS[name], options)
    thinned = Thinned(task, options)
    for importance in options.importances:
        row = {"network": name, "importance": importance}
        row |= {option: getattr(options, option) for option in MATTERS}
        found = next((one for one in known if row.items() <= one.items()), None)
        if found is None:
            checkpoint = TrainingCheckpoint(options.journal, row)
            found = row | figures(task, thinned, importance, checkpoint)
            if options.journal:
                with options.journal.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found) + "\n")
            checkpoint.discard()
        percents = f"{found['pruned']:.2f} | {found.get('tuned', found['pruned']):.2f}"
        counts = f"{found['parameters']:,} | {found['macs'] / 1e6:.1f} M"
        print(f"| {name} | {importance} | {percents} | {counts} |", flush=True)


def figures(
    task: Task, thinned: Thinned, importance: str, checkpoint: TrainingCheckpoint
) -> dict[str, Any]:
    """Return what a row has; a training that was begun goes on."""
    if importance == "dense":
        return untrained(task, task.model)
    if checkpoint.facts:
        model = rebuild(task.model, ThinRecipe.from_json(checkpoint.facts["recipe"]))
        found = checkpoint.facts["figures"]
    else:
        result = thinned.by(importance)
        model, found = result.model, untrained(task, result.model)
        checkpoint.facts = {"recipe": result.recipe.to_json(), "figures": found}
    task.fine_tune(model, checkpoint, importance)
    return {**found, "tuned": task.accuracy(model)}


def untrained(task: Task, model: nn.Module) -> dict[str, Any]:
    """Return accuracy and size of a model as it is."""
    image = IMAGE.to(next(model.parameters()).device)
    return {
        "pruned": task.accuracy(model),
        "parameters": sum(one.numel() for one in model.parameters()),
        "macs": sum(macs(trace(model, image)).values()),
    }


def times(name: str, options: argparse.Namespace) -> None:
    """Print the latencies of one network."""
    task = Task(NETWORKS[name], options)
    thinned = Thinned(task, options)
    models = {"dense": task.model} | {one: thinned.by(one).model for one in IMPORTANCES}
    found = latencies(models, options.turns)
    for importance, each in found.items():
        print(f"| {name} | {importance} | {each:.2f} | {found['dense'] / each:.2f}x |", flush=True)


def main() -> None:
    """Print one row per network and importance as a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "networks", nargs="*", default=list(NETWORKS), help=f"of {', '.join(NETWORKS)}; all"
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of weights and images")
    parser.add_argument("--level", type=float, default=0.5, help="fraction of the MACs that goes")
    choices = ["dense", *IMPORTANCES]
    parser.add_argument(
        "--importances", nargs="+", default=choices, choices=choices, help="rows of the table"
    )
    parser.add_argument("--streams", action="store_true", help="prune residual streams as well")
    parser.add_argument(
        "--scope", choices=["global", "local"], default="global", help="where scores compete"
    )
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps of fine-tuning")
    parser.add_argument("--batch", type=int, default=128, help="images of a step")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of the first step")
    parser.add_argument("--train", type=int, help="use so many training images, not all")
    parser.add_argument("--images", type=int, default=10000, help="test images")
    parser.add_argument("--journal", type=Path, help="keeps rows; those in it are not recomputed")
    parser.add_argument("--latency", action="store_true", help="time, and train nothing")
    parser.add_argument("--turns", type=int, default=100, help="runs of each model for latency")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ...")
    options = parser.parse_args()
    for name in set(options.networks) - NETWORKS.keys():
        parser.error(f"no network '{name}'; there are {', '.join(NETWORKS)}")
    torch.set_num_threads(1)
    head = "ms | speed" if options.latency else "pruned, % | tuned, % | parameters | MACs"
    print(f"| network | importance | {head} |")
    print(f"|---|---|{'---:|' * (head.count('|') + 1)}")
    for name in options.networks:
        torch.manual_seed(0)
        (times if options.latency else accuracies)(name, options)


if __name__ == "__main__":
    main()

"""What constraints cost: accuracy after pruning on CIFAR-10, without any training.

At every level each layer loses the input channels that weigh least: all layers that share
channels the same ones (constrained), or each its own (unconstrained). At level 1 each keeps one.
Five importances. The table has the mean accuracy over the levels; `--picture FILE` draws all
curves. `--journal FILE` keeps what is done, so that a run that was stopped goes on. The DenseNet
is trained first where `--weights` is not there yet.

    python benchmarks/unconstrained_accuracy.py resnet20 densenet resnet56 --journal curves.json
"""

import argparse
import copy
import importlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from nncfx.channels import analyze_channels
from nncfx.graph.channels import Channels, Role
from nncfx.schemes import (
    CRITERIA,
    Criterion,
    Ranking,
    group_masks,
    keep_groups,
    unconstrained_masks,
)

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "cifar10"))

INPUTS: Final = torch.zeros(1, 3, 32, 32)
GROWTH: Final = 12
STATISTICS_IMAGES: Final = 512
BATCH: Final = 250
NEARLY_ALL: Final = 1 - 1e-9


class DenseBlock(nn.Module):
    """Layers that each read all that stands before them."""

    def __init__(self, channels: int, layers: int) -> None:
        """Make `layers` layers of `GROWTH` channels."""
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels + i * GROWTH) for i in range(layers))
        self.convs = nn.ModuleList(
            nn.Conv2d(channels + i * GROWTH, GROWTH, 3, padding=1, bias=False)
            for i in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input and all that the layers add, side by side."""
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = torch.cat([x, conv(F.relu(norm(x)))], 1)
        return x


class DenseNet(nn.Module):
    """Three dense blocks of five layers, with a transition between any two."""

    def __init__(self) -> None:
        """Make the network with PyTorch's default weights."""
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(3, 24, 3, padding=1, bias=False)]
        channels = 24
        for block in range(3):
            if block:
                parts += [nn.BatchNorm2d(channels), nn.ReLU()]
                parts += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
                channels //= 2
            parts.append(DenseBlock(channels, 5))
            channels += 5 * GROWTH
        self.features = nn.Sequential(*parts, nn.BatchNorm2d(channels), nn.ReLU())
        self.linear = nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return n x 10 logits."""
        return self.linear(self.features(x).mean((2, 3)))


def trained_densenet(folder: Path, options: argparse.Namespace) -> nn.Module:
    """Return the DenseNet, trained now or as trained before (`--weights`)."""
    data = importlib.import_module("data")
    torch.manual_seed(0)
    model = DenseNet()
    if options.weights.exists():
        model.load_state_dict(load_file(options.weights))
        return model.eval()
    images, labels = data._train(folder)  # noqa: SLF001 (an example's own module)
    batches = data.Batches(images, labels, 128, augment=True, most=options.images_per_epoch)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    model = model.to(memory_format=torch.channels_last)
    steps = options.epochs * len(batches)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=steps)
    for epoch in range(options.epochs):
        for batch, target in batches:
            optimizer.zero_grad()
            logits = model(batch.contiguous(memory_format=torch.channels_last))
            loss = F.cross_entropy(logits, target)
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1} of {options.epochs}: loss {loss.item():.2f}", file=sys.stderr)
    state = {name: one.contiguous() for name, one in model.state_dict().items()}
    save_file(state, options.weights)
    return model.eval()


def pretrained(name: str, folder: Path, options: argparse.Namespace) -> nn.Module:
    """Return a trained network."""
    if name == "densenet":
        return trained_densenet(folder, options)
    resnet = importlib.import_module("model").ResNet
    model: nn.Module = resnet(blocks={"resnet20": 3, "resnet56": 9}[name])
    model.load_state_dict(load_file(folder / "weights" / f"{name}_cifar10_optA.safetensors"))
    return model.eval()


@dataclass(frozen=True)
class Importance:
    """How channels are ranked: a criterion, on weights or on weights times gradients."""

    criterion: Criterion
    scope: Any = "local"
    on_gradients: bool = False


IMPORTANCES: Final[Mapping[str, Importance]] = {
    "L1": Importance("l1norm"),
    "L2": Importance("l2norm"),
    "LAMP": Importance("lamp", "global"),
    "FPGM": Importance("geometric_median"),
    "Taylor": Importance(lambda blocks: blocks.sum(dim=1).abs(), on_gradients=True),
}


def tied_masks(
    channels: Channels,
    weights: Mapping[str, torch.Tensor],
    level: float,
    importance: Importance,
    scored: Mapping[str, torch.Tensor],
) -> dict[str, torch.Tensor]:
    """Return masks with constraints: a group goes from all its readers, by all their columns."""
    scores = []
    score = importance.criterion
    score = CRITERIA[score] if isinstance(score, str) else score
    for one in channels.prunable:
        columns = [
            scored[m.parameter].movedim(m.axis, 0)[torch.from_numpy(m.indices.copy())].flatten(1)
            for m in one.by_role(Role.CONSUMER)
        ]
        found = score(torch.cat(columns, dim=1))
        scores.append(found / found.mean())
    keep = keep_groups(scores, level, scope=importance.scope)
    return group_masks(channels, keep, weights)


def gradients(
    model: nn.Module, batch: torch.Tensor, target: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return weights times gradients of the loss."""
    model = copy.deepcopy(model)
    F.cross_entropy(model(batch), target).backward()
    named = model.named_parameters()
    return {name: (one * one.grad).detach() for name, one in named if one.grad is not None}


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of images that are recognised, in percent."""
    with torch.inference_mode():
        found = torch.cat([model(batch).argmax(1) for batch in images.split(BATCH)])
    return 100 * float((found == labels).double().mean())


class Trial:
    """A trained network, and how well it does under masks."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        data = importlib.import_module("data")
        model = pretrained(name, options.data, options)
        self.model = model.to(memory_format=torch.channels_last)
        images, labels = data._test(options.data)  # noqa: SLF001 (an example's own module)
        (images, self.labels), *_ = data.Batches(
            images[: options.images], labels[: options.images], options.images
        )
        self.images = images.contiguous(memory_format=torch.channels_last)
        train = data.Batches(*data._train(options.data), STATISTICS_IMAGES)  # noqa: SLF001 (as above)
        self.products = gradients(self.model, *next(iter(train)))
        self.channels = analyze_channels(self.model, INPUTS)
        self.weights = {name: one.detach() for name, one in self.model.named_parameters()}

    def masks(self, one: Importance, level: float, *, tied: bool) -> Mapping[str, torch.Tensor]:
        """Return masks by parameter."""
        scored = self.products if one.on_gradients else self.weights
        level = min(level, NEARLY_ALL)
        if tied:
            return tied_masks(self.channels, self.weights, level, one, scored)
        ranking = Ranking(criterion=one.criterion, scope=one.scope)
        return unconstrained_masks(self.channels, self.weights, level, ranking, scored=scored)

    def curve(self, one: Importance, levels: list[float], *, tied: bool) -> list[float]:
        """Return the accuracy at each level."""
        found = []
        for level in levels:
            masked = copy.deepcopy(self.model)
            weights = dict(masked.named_parameters())
            with torch.no_grad():
                for name, mask in self.masks(one, level, tied=tied).items():
                    weights[name].mul_(mask)
            found.append(accuracy(masked, self.images, self.labels))
        return found


Curves: TypeAlias = dict[str, dict[str, list[float]]]
"""`model importance` to the accuracies at all levels, `constrained` and `unconstrained`."""


def report(options: argparse.Namespace, levels: list[float]) -> Curves:
    """Print a row per model and importance, and return the curves."""
    journal: Curves = json.loads(options.journal.read_text()) if options.journal.exists() else {}
    print(f"{options.images} images, {len(levels)} levels\n")
    print("| model | importance | constrained | unconstrained | mean gain | largest, at level |")
    print("|---|---|---|---|---|---|", flush=True)
    shown: Curves = {}
    for model in options.models:
        trial = None
        for name in options.importances:
            key = f"{model} {name}"
            if key not in journal:
                trial = trial or Trial(model, options)
                one = IMPORTANCES[name]
                journal[key] = {
                    "constrained": trial.curve(one, levels, tied=True),
                    "unconstrained": trial.curve(one, levels, tied=False),
                }
                options.journal.write_text(json.dumps(journal))
            shown[key] = journal[key]
            row(key, shown[key], levels)
        of_model = [gain(one) for key, one in shown.items() if key.startswith(f"{model} ")]
        print(f"| {model} | mean | | | {sum(of_model) / len(of_model):+.2f} | |", flush=True)
    return shown


def gain(curves: Mapping[str, list[float]]) -> float:
    """Return by how many points the mean over the levels is higher without constraints."""
    tied, free = curves["constrained"], curves["unconstrained"]
    return (sum(free) - sum(tied)) / len(tied)


def row(key: str, curves: Mapping[str, list[float]], levels: list[float]) -> None:
    """Print the means of two curves."""
    tied, free = curves["constrained"], curves["unconstrained"]
    best = max(range(len(levels)), key=lambda index: free[index] - tied[index])
    print(
        f"| {key.replace(' ', ' | ')} | {sum(tied) / len(tied):.2f} "
        f"| {sum(free) / len(free):.2f} | {gain(curves):+.2f} "
        f"| {free[best] - tied[best]:+.2f}, {levels[best]:.3f} |",
        flush=True,
    )


def draw(curves: Curves, levels: list[float], options: argparse.Namespace) -> None:
    """Draw a row of panels per model, a panel per importance."""
    pyplot = importlib.import_module("matplotlib.pyplot")
    down, across = len(options.models), len(options.importances)
    figure, panels = pyplot.subplots(
        down, across, figsize=(2.4 * across, 2.1 * down), sharex=True, sharey=True, squeeze=False
    )
    for (key, pair), panel in zip(curves.items(), panels.flat, strict=True):
        for kind, style in (("constrained", "--"), ("unconstrained", "-")):
            panel.plot(levels, pair[kind], style, label=kind, linewidth=1.2)
        panel.set_title(f"{key.replace(' ', ', ')}: {gain(pair):+.1f}", fontsize=9)
        panel.grid(alpha=0.3)
    for panel in panels[-1]:
        panel.set_xlabel("level")
    for panel in panels[:, 0]:
        panel.set_ylabel("accuracy, %")
    panels[0, 0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(options.picture)


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", choices=["resnet20", "resnet56", "densenet"])
    folder = os.environ.get("NNCFX_DATA", "../shared/data")
    parser.add_argument("--data", type=Path, default=Path(folder), help="where the data lies")
    parser.add_argument("--images", type=int, default=10_000, help="images of the test set")
    parser.add_argument("--step", type=float, default=2.5, help="percent between two levels")
    parser.add_argument("--importances", nargs="+", choices=IMPORTANCES, default=[*IMPORTANCES])
    parser.add_argument("--journal", type=Path, default=Path("unconstrained_accuracy.json"))
    parser.add_argument("--picture", type=Path, help="picture to draw, of any type by its suffix")
    parser.add_argument("--weights", type=Path, default=Path("densenet.safetensors"))
    parser.add_argument("--epochs", type=int, default=8, help="of training the DenseNet")
    parser.add_argument("--images-per-epoch", type=int, default=50_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    levels = [n * options.step / 100 for n in range(int(100 / options.step) + 1)]
    curves = report(options, levels)
    if options.picture:
        draw(curves, levels, options)


if __name__ == "__main__":
    main()

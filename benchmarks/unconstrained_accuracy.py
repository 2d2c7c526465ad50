"""What constraints cost: accuracy after pruning on CIFAR-10, without any training.

At every level each layer loses the input channels that weigh least: all layers that share
channels the same ones (constrained), or each its own (unconstrained). Five importances. The
table has the mean accuracy over the levels; `--curves FILE` draws all curves.

    python benchmarks/unconstrained_accuracy.py resnet20 --data ../shared/data --curves curves.png
"""

import argparse
import copy
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from nncfx.graph.channels import Channels, Role
from nncfx.schemes import (
    CRITERIA,
    Criterion,
    Ranking,
    group_masks,
    keep_groups,
    unconstrained_masks,
)
from nncfx.tracing import analyze_channels

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "cifar10"))

INPUTS: Final = torch.zeros(1, 3, 32, 32)
GROWTH: Final = 12
STATISTICS_IMAGES: Final = 512


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
    steps = options.epochs * len(batches)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=steps)
    for epoch in range(options.epochs):
        for batch, target in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch), target)
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1} of {options.epochs}: loss {loss.item():.2f}", file=sys.stderr)
    save_file(model.state_dict(), options.weights)
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


@torch.no_grad()
def accuracy(model: nn.Module, batches: Any) -> float:  # noqa: ANN401 (an example's own class)
    """Return the share of images that are recognised, in percent."""
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in batches)
    return 100 * right / batches.count


def curve(
    model: nn.Module,
    batches: Any,  # noqa: ANN401 (an example's own class)
    masks_at: Callable[[float], Mapping[str, torch.Tensor]],
    levels: list[float],
) -> list[float]:
    """Return the accuracy at each level."""
    found = []
    for level in levels:
        masked = copy.deepcopy(model)
        weights = dict(masked.named_parameters())
        with torch.no_grad():
            for name, mask in masks_at(level).items():
                weights[name].mul_(mask)
        found.append(accuracy(masked, batches))
    return found


def report(options: argparse.Namespace) -> None:
    """Print a row per importance."""
    data = importlib.import_module("data")
    model = pretrained(options.model, options.data, options)
    images, labels = data._test(options.data)  # noqa: SLF001 (an example's own module)
    batches = data.Batches(images[: options.images], labels[: options.images], 250)
    train = data.Batches(*data._train(options.data), STATISTICS_IMAGES)  # noqa: SLF001 (as above)
    products = gradients(model, *next(iter(train)))
    channels = analyze_channels(model, INPUTS)
    weights = {name: one.detach() for name, one in model.named_parameters()}
    levels = [n * options.step / 100 for n in range(int(100 / options.step))]
    print(
        f"{options.model}, {options.images} images, {len(levels)} levels, "
        f"dense {accuracy(model, batches):.2f} %\n",
    )
    print("| importance | constrained | unconstrained | mean gain | largest gain | at level |")
    print("|---|---|---|---|---|---|", flush=True)
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for name in options.importances:
        one = IMPORTANCES[name]
        scored = products if one.on_gradients else weights
        ranking = Ranking(criterion=one.criterion, scope=one.scope)
        tied = curve(
            model,
            batches,
            lambda level, one=one, scored=scored: tied_masks(
                channels, weights, level, one, scored
            ),
            levels,
        )
        free = curve(
            model,
            batches,
            lambda level, ranking=ranking, scored=scored: unconstrained_masks(
                channels, weights, level, ranking, scored=scored
            ),
            levels,
        )
        curves[name] = (tied, free)
        gains = [b - a for a, b in zip(tied, free, strict=True)]
        best = max(range(len(gains)), key=gains.__getitem__)
        print(
            f"| {name} | {sum(tied) / len(tied):.2f} | {sum(free) / len(free):.2f} "
            f"| {sum(gains) / len(gains):+.2f} | {gains[best]:+.2f} | {levels[best]:.3f} |",
            flush=True,
        )
    gain = sum(b - a for tied, free in curves.values() for a, b in zip(tied, free, strict=True))
    print(f"\nMean gain: {gain / len(levels) / len(curves):+.2f} points.")
    if options.curves:
        draw(levels, curves, options)


def draw(
    levels: list[float],
    curves: Mapping[str, tuple[list[float], list[float]]],
    options: argparse.Namespace,
) -> None:
    """Draw a panel per importance."""
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, panels = pyplot.subplots(1, len(curves), figsize=(3 * len(curves), 3), sharey=True)
    for panel, (name, (tied, free)) in zip(panels, curves.items(), strict=True):
        panel.plot(levels, tied, label="constrained")
        panel.plot(levels, free, label="unconstrained")
        panel.set(title=name, xlabel="level")
    panels[0].set_ylabel("accuracy, %")
    panels[0].legend()
    figure.suptitle(options.model)
    figure.tight_layout()
    figure.savefig(options.curves)


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=["resnet20", "resnet56", "densenet"])
    folder = os.environ.get("NNCFX_DATA", "../shared/data")
    parser.add_argument("--data", type=Path, default=Path(folder), help="where the data lies")
    parser.add_argument("--images", type=int, default=10_000, help="images of the test set")
    parser.add_argument("--step", type=float, default=2.5, help="percent between two levels")
    parser.add_argument("--importances", nargs="+", choices=IMPORTANCES, default=[*IMPORTANCES])
    parser.add_argument("--curves", type=Path, help="picture to draw")
    parser.add_argument("--weights", type=Path, default=Path("densenet.safetensors"))
    parser.add_argument("--epochs", type=int, default=8, help="of training the DenseNet")
    parser.add_argument("--images-per-epoch", type=int, default=50_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    report(options)


if __name__ == "__main__":
    main()

"""Fine-tune a pretrained CIFAR network under sparsity, for a table of accuracies.

Magnitude sparsity at several levels and RB sparsity at 50 %, each from the pretrained weights in
the user's own loop, with random shifts and mirroring: magnitude has the whole level from the first
step on, with SGD; RB, whose scores have gradients too small for SGD, moves towards it with Adam.
Learning rates fall to zero by a cosine. Accuracies are of the test set.

python benchmarks/cifar_sparsity.py --data ../shared/data --train 10000 --epochs 2
python benchmarks/cifar_sparsity.py --data ../shared/data --network resnet56-A --epochs 2
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from pretrained import PRETRAINED
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F

import nncfx

LEVELS: Final = (0.5, 0.8, 0.9)
SHIFT: Final = 4
HALF: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a network is fine-tuned.

    Attributes:
        images: n x 3 x 32 x 32, normalised; not augmented.
        labels: n.
        epochs: Passes over them.
        batch: Images a step.
        lr: The learning rate at the beginning; it ends at zero.
    """

    images: Tensor
    labels: Tensor
    epochs: int
    batch: int
    lr: float


def item(algorithm: str, level: float, epochs: int) -> Mapping[str, Any]:
    """Return the config that aims at `level` from the first epoch on."""
    made: dict[str, Any] = {
        "algorithm": algorithm,
        "params": {
            "sparsity_target": level,
            "sparsity_target_epoch": 0,
            "sparsity_freeze_epoch": epochs,
        },
    }
    return made | ({"compression_lr_multiplier": 1000} if algorithm == "rb_sparsity" else {})


def fine_tune(controller: Any, model: nn.Module, recipe: Recipe, what: str) -> None:  # noqa: ANN401 (of any algorithm)
    """Train `model` under `controller`, as a user of NNCF would."""
    generator = torch.Generator().manual_seed(0)
    optimizer: torch.optim.Optimizer
    if controller.algorithm == "rb_sparsity":
        optimizer = torch.optim.Adam(controller.parameter_groups(lr=recipe.lr / 50))
    else:
        groups = controller.parameter_groups(lr=recipe.lr)
        optimizer = torch.optim.SGD(groups, momentum=0.9, weight_decay=1e-4)
    count = len(recipe.images)
    steps = recipe.epochs * (count // recipe.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(recipe.epochs):
        controller.scheduler.epoch_step()
        model.train()
        order = torch.randperm(count, generator=generator)
        rows = order[: count - count % recipe.batch].split(recipe.batch)
        for chosen in track(rows, f"{what}, epoch {epoch + 1}"):
            controller.scheduler.step()
            images = augmented(recipe.images[chosen], generator)
            loss = F.cross_entropy(model(images), recipe.labels[chosen]) + controller.loss()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


def augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images shifted together and mirrored one by one, at random."""
    left, up = torch.randint(0, 2 * SHIFT + 1, (2,), generator=generator).tolist()
    padded = F.pad(images, (SHIFT,) * 4)[..., up : up + 32, left : left + 32]
    mirrored = torch.rand(len(images), generator=generator) < HALF
    return torch.where(mirrored.view(-1, 1, 1, 1), padded.flip(3), padded)


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of right answers, in percent."""
    model.eval()
    with torch.no_grad():
        answers = torch.cat([model(part).argmax(1) for part in images.split(500)])
    return float((answers == labels).float().mean()) * 100


def main() -> None:
    """Parse the command line, fine-tune, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--network", default="resnet20-A", choices=sorted(PRETRAINED))
    parser.add_argument("--train", type=int, help="training images; all without")
    parser.add_argument("--test", type=int, help="test images; all without")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--levels", nargs="*", type=float, default=LEVELS, help="of magnitude")
    parser.add_argument("--rb", type=float, default=HALF, help="level of RB sparsity; 0 for none")
    chosen = parser.parse_args()
    network = PRETRAINED[chosen.network]
    recipe = Recipe(
        **dict(zip(("images", "labels"), network.train(chosen.data, chosen.train), strict=True)),
        epochs=chosen.epochs,
        batch=chosen.batch,
        lr=chosen.lr,
    )
    test = [one[: chosen.test] for one in network.test(chosen.data)]
    dense = accuracy(network.load(chosen.data), *test)
    runs = [("magnitude_sparsity", level) for level in chosen.levels]
    runs += [("rb_sparsity", chosen.rb)] if chosen.rb else []
    lines = [
        f"| {chosen.network}, dense {dense:.2f} % | level | fine-tuned | points | zeros |",
        "|---|---:|---:|---:|---:|",
    ]
    for algorithm, level in runs:
        torch.manual_seed(0)
        config = {"compression": item(algorithm, level, chosen.epochs)}
        controller, model = nncfx.create_compressed_model(
            network.load(chosen.data), config, torch.zeros(1, 3, 32, 32)
        )
        fine_tune(controller, model, recipe, f"{algorithm} {level}")
        stripped = controller.strip()
        after = accuracy(stripped, *test)
        zeros = [one for one in stripped.parameters() if one.ndim > 1]
        share = sum(int((one == 0).sum()) for one in zeros) / sum(one.numel() for one in zeros)
        lines.append(
            f"| {algorithm} | {level} | {after:.2f} % | {after - dense:+.2f} | {share:.1%} |"
        )
        sys.stderr.write(f"{lines[-1]}\n")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

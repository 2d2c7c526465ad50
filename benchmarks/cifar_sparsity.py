"""Fine-tune a pretrained CIFAR network under sparsity, for a table of accuracies.

Magnitude sparsity at several levels and RB sparsity at 50 %, each from the pretrained weights in
the user's own loop, every image shifted and mirrored at random. Magnitude has the whole level from
the first step on (or reaches it by the middle of training, --gradual), with SGD; RB, whose scores
have gradients too small for SGD, moves towards it with Adam. Learning rates fall to zero by a
cosine. With --average DECAY an exponential moving average of the weights is kept as well, by
torch's own AveragedModel, its batch norms adapted afterwards; both are judged. Accuracies are of
the test set and of its two halves, so that a recipe can be chosen by the first and reported on the
second, or of training images that are held out (--hold-out). Rows that stand in --rows FILE
already are not run again.

python benchmarks/cifar_sparsity.py --data ../shared/data --rows resnet20.jsonl
python benchmarks/cifar_sparsity.py --data ../shared/data --network resnet56-A --average 0.99
python benchmarks/cifar_sparsity.py --data ../shared/data --levels 0.5 --rb 0 --hold-out 5000
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from pretrained import PRETRAINED, Pretrained
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import nncfx
from nncfx.controllers import adapt_batch_norms

LEVELS: Final = (0.5, 0.8, 0.9)
SHIFT: Final = 4
HALF: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a network is fine-tuned.

    Attributes:
        epochs: Passes over the training images.
        batch: Images a step.
        lr: The learning rate at the beginning; it ends at zero.
        seed: Of the order of the images, their augmentation and the noise of RB.
        is_gradual: Whether magnitude reaches its level by the middle of training, step by step.
        is_distilled: Whether the dense network teaches, too.
        is_bf16: Whether forwards and backwards are computed in bfloat16, by autocast.
        average: What a step keeps of the moving average of the weights; 0 for no average.
        importance: By which magnitude ranks weights, as the config spells it.
        ignored: Scopes that stay dense, as the config spells them.
    """

    epochs: int
    batch: int
    lr: float
    seed: int
    is_gradual: bool
    is_distilled: bool
    is_bf16: bool
    average: float
    importance: str
    ignored: tuple[str, ...]


def items(algorithm: str, level: float, recipe: Recipe, steps: int) -> list[Mapping[str, Any]]:
    """Return what the config asks for, with so many `steps` an epoch."""
    params: dict[str, Any] = {
        "sparsity_target": level,
        "sparsity_target_epoch": 0,
        "sparsity_freeze_epoch": recipe.epochs,
    }
    if recipe.is_gradual and algorithm == "magnitude_sparsity":
        params |= {
            "sparsity_target_epoch": recipe.epochs // 2,
            "update_per_optimizer_step": True,
            "steps_per_epoch": steps,
        }
    if algorithm == "magnitude_sparsity":
        params["weight_importance"] = recipe.importance
    made: dict[str, Any] = {"algorithm": algorithm, "params": params}
    made["ignored_scopes"] = list(recipe.ignored)
    if algorithm == "rb_sparsity":
        made["compression_lr_multiplier"] = 200
    teacher = {"algorithm": "knowledge_distillation", "type": "softmax", "temperature": 4}
    return [made, teacher] if recipe.is_distilled else [made]


def fine_tune(
    controller: Any,  # noqa: ANN401 (of any algorithm)
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    recipe: Recipe,
    what: str,
) -> AveragedModel:
    """Train `model` under `controller`, as a user of NNCF would; return the average of it."""
    generator = torch.Generator().manual_seed(recipe.seed)
    optimizer: torch.optim.Optimizer
    if what.startswith("rb_sparsity"):
        optimizer = torch.optim.Adam(controller.parameter_groups(lr=recipe.lr / 50))
    else:
        groups = controller.parameter_groups(lr=recipe.lr)
        optimizer = torch.optim.SGD(groups, momentum=0.9, weight_decay=1e-4, nesterov=True)
    # parameters are averaged, and buffers, the masks among them, are those of the last step
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(recipe.average))
    steps = recipe.epochs * (len(data[0]) // recipe.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(recipe.epochs):
        controller.scheduler.epoch_step()
        model.train()
        for images, labels in batches(data, recipe.batch, generator, f"{what}, {epoch + 1}"):
            controller.scheduler.step()
            with torch.autocast("cpu", torch.bfloat16, enabled=recipe.is_bf16):
                answers = model(images)
            loss = F.cross_entropy(answers.float(), labels) + controller.loss()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if recipe.average:
                averaged.update_parameters(model)
    return averaged


def batches(
    data: tuple[Tensor, Tensor], size: int, generator: torch.Generator, what: str
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield whole batches of images, in random order and augmented, and their labels."""
    images, labels = data
    count = len(images)
    black = images.amin((0, 2, 3))
    order = torch.randperm(count, generator=generator)
    for chosen in track(order[: count - count % size].split(size), what):
        yield augmented(images[chosen], black, generator), labels[chosen]


def augmented(images: Tensor, black: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images (n x c x 32 x 32), each shifted and mirrored at random.

    What a shift leaves free has the colour `black` (c), as in the training of the networks.
    """
    count, side = len(images), images.shape[-1]
    rows, columns = torch.randint(0, 2 * SHIFT + 1, (2, count, 1), generator=generator)
    is_mirrored = torch.rand(count, 1, generator=generator) < HALF
    line = torch.arange(side)
    rows, columns = rows + line, columns + torch.where(is_mirrored, line.flip(0), line)
    colour = black.view(-1, 1, 1)
    padded = (F.pad(images - colour, (SHIFT,) * 4) + colour).permute(0, 2, 3, 1)
    each = torch.arange(count).view(-1, 1, 1)
    # the channels stay last in memory, with which a step is a tenth faster here
    return padded[each, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)


def hits(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return for each image whether the answer is right."""
    model.eval()
    with torch.no_grad():
        answers = torch.cat([model(part).argmax(1) for part in images.split(500)])
    return answers == labels


def judged(right: Tensor) -> dict[str, float]:
    """Return the share of right answers in percent: of all, and of either half."""
    half = len(right) // 2
    parts = {"all": right, "first": right[:half], "second": right[half:]}
    return {name: float(one.float().mean()) * 100 for name, one in parts.items()}


@dataclass(frozen=True, kw_only=True)
class Task:
    """A pretrained network, and the images it is trained and judged on."""

    network: Pretrained
    folder: Path
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    def run(self, algorithm: str, level: float, recipe: Recipe) -> dict[str, Any]:
        """Return what the network fine-tuned under `algorithm` is like, and its average."""
        torch.manual_seed(recipe.seed)
        steps = len(self.train[0]) // recipe.batch
        config = {"compression": items(algorithm, level, recipe, steps)}
        network = self.network.load(self.folder).to(memory_format=torch.channels_last)
        controller, model = nncfx.create_compressed_model(
            network, config, torch.zeros(1, 3, 32, 32)
        )
        averaged = fine_tune(controller, model, self.train, recipe, f"{algorithm} {level}")
        found = {"last": self._judged(controller.strip())}
        if recipe.average:
            model.load_state_dict(averaged.module.state_dict())
            generator = torch.Generator().manual_seed(recipe.seed)
            seen = batches(self.train, recipe.batch, generator, "batch norms")
            adapt_batch_norms(model, seen, samples=8000)
            found["average"] = self._judged(controller.strip())
        return found

    def _judged(self, stripped: nn.Module) -> dict[str, float]:
        weights = [one for one in stripped.parameters() if one.ndim > 1]
        share = sum(int((one == 0).sum()) for one in weights) / sum(w.numel() for w in weights)
        return {**judged(hits(stripped, *self.test)), "zeros": share}


def known_rows(path: Path | None) -> dict[str, dict[str, Any]]:
    """Return what stands in the file of rows, by its key."""
    if path is None or not path.exists():
        return {}
    return {one["key"]: one for one in map(json.loads, path.read_text().splitlines())}


def table(
    rows: Iterator[tuple[str, float, dict[str, Any]]], head: str, dense: Mapping[str, float]
) -> str:
    """Return the rows as a table, after writing each to stderr as it comes."""
    parts = ("all", "first", "second")
    lines = ["| " + " | ".join((head, "level", "weights", *parts, "points", "zeros")) + " |"]
    lines.append("|---|---:|---|" + "---:|" * 5)
    values = " | ".join(f"{dense[part]:.2f}" for part in parts)
    lines.append(f"| dense | 0 | | {values} | | |")
    for name, level, row in rows:
        for which in ("last", "average"):
            if which in row:
                one = row[which]
                values = " | ".join(f"{one[part]:.2f}" for part in parts)
                points = f"{one['all'] - dense['all']:+.2f}"
                cells = (name, str(level), which, values, points, f"{one['zeros']:.1%}")
                lines.append("| " + " | ".join(cells) + " |")
                sys.stderr.write(f"{lines[-1]}\n")
    return "\n".join(lines) + "\n"


def rows_of(task: Task, chosen: argparse.Namespace) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """Yield algorithm, level and result of each run, from the file of rows where it stands."""
    known = known_rows(chosen.rows)
    runs = [("magnitude_sparsity", level) for level in chosen.levels]
    runs += [("rb_sparsity", chosen.rb)] if chosen.rb else []
    for seed in chosen.seeds:
        recipe = Recipe(
            epochs=chosen.epochs,
            batch=chosen.batch,
            lr=chosen.lr,
            seed=seed,
            is_gradual=chosen.gradual,
            is_distilled=chosen.distill,
            is_bf16=chosen.bf16,
            average=chosen.average,
            importance=chosen.importance,
            ignored=tuple(chosen.ignored),
        )
        for algorithm, level in runs:
            images = f"{len(task.train[0])}-{len(task.test[0])}-{chosen.hold_out}"
            key = f"{chosen.network} {images} {algorithm} {level} {asdict(recipe)}"
            if key not in known:
                known[key] = {"key": key, **task.run(algorithm, level, recipe)}
                if chosen.rows is not None:
                    with chosen.rows.open("a") as file:
                        file.write(json.dumps(known[key]) + "\n")
            yield f"{algorithm}, seed {seed}", level, known[key]


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Add the options of what is run, and how."""
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--levels", nargs="*", type=float, default=LEVELS, help="of magnitude")
    parser.add_argument("--rb", type=float, default=HALF, help="level of RB sparsity; 0 for none")
    parser.add_argument("--gradual", action="store_true", help="reach the level step by step")
    parser.add_argument("--distill", action="store_true", help="the dense network teaches, too")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    parser.add_argument("--average", type=float, default=0, help="decay of an average; 0: none")
    parser.add_argument("--importance", default="normed_abs", choices=("normed_abs", "abs"))
    parser.add_argument("--ignored", nargs="*", default=[], help="scopes that stay dense")


def main() -> None:
    """Parse the command line, fine-tune, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--network", default="resnet20-A", choices=sorted(PRETRAINED))
    parser.add_argument("--train", type=int, help="training images; all without")
    parser.add_argument("--test", type=int, help="test images; all without")
    parser.add_argument(
        "--hold-out", type=int, default=0, help="judge by the last training images"
    )
    add_recipe(parser)
    parser.add_argument("--rows", type=Path, help="file of results, one JSON object a line")
    chosen = parser.parse_args()
    network = PRETRAINED[chosen.network]
    train, test = network.train(chosen.data, chosen.train), network.test(chosen.data)
    if chosen.hold_out:
        images, labels = train
        test = (images[-chosen.hold_out :], labels[-chosen.hold_out :])
        train = (images[: -chosen.hold_out], labels[: -chosen.hold_out])
    test = (test[0][: chosen.test], test[1][: chosen.test])
    task = Task(network=network, folder=chosen.data, train=train, test=test)
    dense = judged(hits(network.load(chosen.data), *test))
    sys.stdout.write(table(rows_of(task, chosen), chosen.network, dense))


if __name__ == "__main__":
    main()

"""Accuracy against level for L-C, direct compression and fine-tuning: Condensa's Figure 3.

    python examples/cifar10/curves.py --data ../shared/data --network resnet56 --output curves

The defaults are the full schedule, for a GPU; `--quick` shows that all runs. Finished points
are kept, and an L-C that was killed goes on.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

import data
import networks
import torch
from matplotlib.figure import Figure
from torch.nn.functional import cross_entropy

from nncfx.lc import DC, LC, DCFineTuned, Recovery, RecoveryData
from nncfx.schemes import Compose, Prune, Quantize, footprint_bytes

LEVELS = (0.5, 0.8, 0.9, 0.93, 0.95, 0.97, 0.98)


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--network", choices=networks.NETWORKS, required=True)
    parser.add_argument("--output", type=Path, default=Path("curves"))
    parser.add_argument("--levels", type=float, nargs="+", default=LEVELS)
    parser.add_argument("--steps", type=int, default=50, help="L-C iterations; 50")
    parser.add_argument("--iterations", type=int, default=1500, help="minibatches of an L step")
    parser.add_argument("--images", type=int, default=50_000, help="training images of a pass")
    parser.add_argument("--tested", type=int, default=10_000, help="test images that are judged")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--amp", choices=("bfloat16", "float16"), help="mixed precision")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="one level and a few minibatches")
    options = parser.parse_args()
    if options.quick:
        options.levels, options.steps, options.iterations = [0.7], 4, 5
        options.images, options.tested, options.batch = 480, 200, 32
    return options


def methods(options: argparse.Namespace) -> dict[str, Recovery]:
    """Return the ways of recovery; fine-tuning sees as many minibatches as L-C."""
    count = (options.steps - 1) * options.iterations
    epochs = max(1, round(count * options.batch / options.images))
    shared = {
        "weight_decay": 1e-4,
        "recalibration_batches": 4 if options.quick else 50,
        "amp": options.amp,
    }
    # mu has to grow about a thousandfold, whatever the number of iterations
    growth = max(1.1, 1000 ** (1 / max(1, options.steps - 2)))
    return {
        "DC": DC(),
        "DC fine-tuned": DCFineTuned(epochs=epochs, lr=0.02, lr_end=2e-4, **shared),
        "L-C": LC(
            steps=options.steps,
            lr=0.02,
            lr_end=2e-4,
            mb_iterations_per_l=options.iterations,
            mu_init=1e-3,
            mu_multiplier=growth,
            resume_folder=options.output / "unfinished",
            **shared,
        ),
    }


def accuracy(model: torch.nn.Module, batches: data.Batches) -> float:
    """Return the fraction of images that `model` names rightly."""
    device = next(model.parameters()).device
    right = sum(int((model(x.to(device)).argmax(1).cpu() == y).sum()) for x, y in batches)
    return right / batches.count


def draw(path: Path, rows: Sequence[dict[str, float | str]], dense: float) -> None:
    """Draw the curves, over the density on a logarithmic axis."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for method in dict.fromkeys(row["method"] for row in rows):
        points = sorted((row["level"], row["accuracy"]) for row in rows if row["method"] == method)
        axes.plot(
            [-math.log10(1 - x) for x, _ in points], [y for _, y in points], "o-", label=method
        )
    axes.axhline(dense, color="grey", linestyle=":", label="dense")
    levels = sorted({row["level"] for row in rows})
    axes.set_xticks([-math.log10(1 - level) for level in levels], [f"{one:g}" for one in levels])
    axes.set(xlabel="level", ylabel="accuracy")
    axes.legend()
    figure.savefig(path)


def main() -> None:
    """Recover the network in every way at every level; write JSON and the picture as it goes."""
    options = arguments()
    options.output.mkdir(parents=True, exist_ok=True)
    model = networks.pretrained(options.network, options.data).to(options.device)
    train, test = data.parts(options.data, options.images, options.tested, options.batch)
    recovery = RecoveryData(
        train=train, validate=lambda m: accuracy(m, test), criterion=cross_entropy
    )
    with torch.no_grad():
        dense = accuracy(model, test)
    size = footprint_bytes(model)
    scheme = Compose([Prune(), Quantize("float16")])
    path = options.output / f"{options.network}.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    print(f"{options.network}: {dense:.4f} of {options.tested} test images, {size:,} bytes\n")
    print("| level | method | accuracy | change | footprint |\n|---|---|---|---|---|")
    for level in options.levels:
        for name, method in methods(options).items():
            if any((row["level"], row["method"]) == (level, name) for row in rows):
                continue
            found = method.recover(model, scheme, level, recovery)
            times = size / footprint_bytes(found.compressed)
            change = 100 * (found.metric - dense)
            print(
                f"| {level:g} | {name} | {found.metric:.4f} | {change:+.2f} | {times:.1f}x |",
                flush=True,
            )
            rows.append(
                {"level": level, "method": name, "accuracy": found.metric, "footprint": times}
            )
            path.with_suffix(".part").write_text(json.dumps(rows, indent=1))
            path.with_suffix(".part").replace(path)
    draw(options.output / f"{options.network}.svg", rows, dense)


if __name__ == "__main__":
    main()

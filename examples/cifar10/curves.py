"""Accuracy against level for L-C, direct compression and fine-tuning: Condensa's Figure 3.

    python examples/cifar10/curves.py --data ../shared/data --network resnet56 --output curves

The defaults are the full schedule, for a GPU; `--quick` shows that all runs. Finished points
are kept, and an L-C that was killed goes on. Steps are chosen by the first `--chosen` test
images, and what is reported is the accuracy on the others. With `--search EPS` a `Compressor`
looks for the level of each method as well, the dashed lines of the figure.
"""

import argparse
import copy
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import data
import networks
import torch
from safetensors.torch import load_file, save
from torch.nn.functional import cross_entropy

import nncfx
from nncfx.lc import DC, LC, DCFineTuned, Recovery, RecoveryData
from nncfx.objectives import Minimize, footprint
from nncfx.schemes import BlockPrune, Compose, Prune, Quantize, Scheme, footprint_bytes
from nncfx.search import SearchSettings

LEVELS = (0.5, 0.8, 0.9, 0.93, 0.95, 0.97, 0.98)
GRADUAL = "DC fine-tuned, level by level"
METHODS = ("DC", "DC, norms recalibrated", "DC fine-tuned", GRADUAL, "L-C")
PRUNE: dict[str, Scheme] = {
    "magnitude": Prune(),
    # single weights as blocks of one: ranked within their layer first, so that none runs empty
    "lamp": BlockPrune("lamp", bs=1, layers=("conv2d", "linear")),
}
Parts = tuple[data.Batches, data.Batches, data.Batches]
"""Images to train on, to choose steps by, and to report on."""


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--network", choices=networks.NETWORKS, required=True)
    parser.add_argument("--output", type=Path, default=Path("curves"))
    parser.add_argument("--levels", type=float, nargs="*", default=LEVELS)
    parser.add_argument("--steps", type=int, default=50, help="L-C iterations; 50")
    parser.add_argument("--iterations", type=int, default=1500, help="minibatches of an L step")
    parser.add_argument("--images", type=int, default=50_000, help="training images of a pass")
    parser.add_argument("--chosen", type=int, default=2500, help="test images to choose steps by")
    parser.add_argument("--tested", type=int, default=7500, help="test images to report on")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.02, help="it falls a hundredfold; 0.02")
    parser.add_argument("--mu", type=float, nargs=2, default=(1e-3, 1.0), help="first and last")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--criterion", choices=PRUNE, default="magnitude", help="of the weights")
    parser.add_argument("--search", type=float, metavar="EPS", help="accuracy that may be lost")
    parser.add_argument("--amp", choices=("bfloat16", "float16"), help="mixed precision")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="one level and a few minibatches")
    options = parser.parse_args()
    for name in (
        "data/cifar10_train.npz",
        "data/cifar10_test.npz",
        f"weights/{networks.NETWORKS[options.network][1]}.safetensors",
    ):
        if not (options.data / name).exists():
            parser.error(
                f"{options.data} has no {name}; examples/data.md says where it comes from"
            )
    if options.quick:
        options.levels, options.steps, options.iterations = [0.7], 4, 5
        options.images, options.batch = 480, 32
        options.chosen, options.tested = 100, 100
    return options


def methods(options: argparse.Namespace) -> dict[str, Recovery]:
    """Return the ways of recovery; fine-tuning sees as many minibatches as L-C."""
    count = (options.steps - 1) * options.iterations
    recalibrated = {"recalibration_batches": max(8, options.iterations // 30)}
    shared = {
        "lr": options.lr,
        "lr_end": options.lr / 100,
        "weight_decay": 1e-4,
        "amp": options.amp,
        **recalibrated,
    }
    tuned = DCFineTuned(epochs=max(1, round(count * options.batch / options.images)), **shared)
    first, last = options.mu
    learned = LC(
        steps=options.steps,
        mb_iterations_per_l=options.iterations,
        mu_init=first,
        # the same range of mu, whatever the number of iterations
        mu_multiplier=(last / first) ** (1 / max(1, options.steps - 2)),
        resume_folder=options.output / "unfinished",
        **shared,
    )
    ways = (DC(), DC(**recalibrated), tuned, tuned, learned)
    return dict(zip(METHODS, ways, strict=True))


def accuracy(model: torch.nn.Module, batches: data.Batches) -> float:
    """Return the fraction of images that `model` names rightly."""
    device = next(model.parameters()).device
    right = sum(int((model(x.to(device)).argmax(1).cpu() == y).sum()) for x, y in batches)
    return right / batches.count


def parts(options: argparse.Namespace) -> Parts:
    """Return images to train on, to choose steps by, and to report on."""
    return data.parts(
        options.data, options.images, (options.chosen, options.tested), options.batch
    )


def found(
    options: argparse.Namespace, images: Parts, model: torch.nn.Module, scheme: Scheme, name: str
) -> dict[str, Any]:
    """Return the smallest network that a search finds with one way of recovery."""
    train, chosen, test = images
    result = nncfx.Compressor(
        model=model,
        objective=Minimize(footprint),
        scheme=scheme,
        optimizer=methods(options)[name],
        trainloader=train,
        valloader=chosen,
        testloader=test,
        criterion=cross_entropy,
        eps=options.search,
        settings=SearchSettings(max_evaluations=1 if options.quick else 10),
        folder=options.output / f"search-{options.network}-{options.criterion}" / name,
    ).run()
    compressed, dense = result.evidence.compressed, result.evidence.dense
    return {
        "level": result.level,
        "method": name,
        "accuracy": compressed.accuracy,
        "footprint": dense.footprint_bytes / compressed.footprint_bytes,
        "trials": len(result.search.trials) - 1,
    }


def draw(path: Path, rows: Sequence[dict[str, Any]], dense: float) -> None:
    """Draw the curves, and the levels that were searched, over the density's logarithm."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (`--help` does without)

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for number, method in enumerate(METHODS):
        points = sorted((row["level"], row["accuracy"]) for row in rows if row["method"] == method)
        if points:
            places = [-math.log10(1 - level) for level, _ in points]
            axes.plot(places, [y for _, y in points], "o-", color=f"C{number}", label=method)
        for row in rows:
            if row["method"] == method and "trials" in row:
                axes.axvline(-math.log10(1 - row["level"]), color=f"C{number}", linestyle="--")
    axes.axhline(dense, color="grey", linestyle=":", label="dense")
    # levels that would be written over each other are written once
    ticks = {round(-math.log10(1 - row["level"]), 1): row["level"] for row in rows}
    axes.set_xticks([-math.log10(1 - one) for one in ticks.values()], map(str, ticks.values()))
    axes.set(xlabel="level", ylabel="accuracy")
    axes.legend()
    figure.savefig(path)


def stepping_stone(path: Path, level: float) -> Path:
    """Return where the weights that fine-tuning found at `level` are kept for the next one."""
    return path.with_name(f"{path.stem}-{level:g}.safetensors")


def before(
    path: Path, model: torch.nn.Module, rows: Sequence[dict[str, Any]], level: float
) -> torch.nn.Module:
    """Return `model` as it was left at the highest level below `level` that was reached."""
    reached = [float(row["level"]) for row in rows if row["method"] == GRADUAL]
    done = [one for one in reached if one < level]
    start = copy.deepcopy(model)
    if done:
        start.load_state_dict(load_file(stepping_stone(path, max(done))))
    return start


def replace(path: Path, content: bytes) -> None:
    """Write a file by way of a temporary name."""
    path.with_suffix(".part").write_bytes(content)
    path.with_suffix(".part").replace(path)


def tried(
    recovery: Recovery, images: Parts, model: torch.nn.Module, scheme: Scheme, level: float
) -> tuple[float, float, torch.nn.Module]:
    """Return accuracy, how often smaller, and the model that a recovery reaches at one level."""
    train, chosen, test = images
    seen = RecoveryData(
        train=train, validate=lambda m: accuracy(m, chosen), criterion=cross_entropy
    )
    result = recovery.recover(model, scheme, level, seen)
    times = footprint_bytes(model) / footprint_bytes(result.compressed)
    with torch.no_grad():
        return accuracy(result.model, test), times, result.model


def main() -> None:
    """Recover the network in every way at every level; write JSON and the picture as it goes."""
    options = arguments()
    options.output.mkdir(parents=True, exist_ok=True)
    model = networks.pretrained(options.network, options.data).to(options.device)
    model.to(memory_format=torch.channels_last)  # a step of VGG-19 takes a sixth less on a CPU
    images = parts(options)
    with torch.no_grad():
        dense = accuracy(model, images[2])
    scheme = Compose([PRUNE[options.criterion], Quantize("float16")])
    path = options.output / f"{options.network}-{options.criterion}.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    print(f"{options.network}: {dense:.4f} of {images[2].count} test images\n")
    print("| level | method | accuracy | change | footprint |\n|---|---|---|---|---|")

    def keep(row: dict[str, Any]) -> None:
        name = row["method"] + (f", found in {row['trials']} trials" if "trials" in row else "")
        print(
            f"| {row['level']:.3g} | {name} | {row['accuracy']:.4f} "
            f"| {100 * (row['accuracy'] - dense):+.2f} | {row['footprint']:.1f}x |",
            flush=True,
        )
        rows.append(row)
        replace(path, json.dumps(rows, indent=1).encode())
        draw(path.with_suffix(".svg"), rows, dense)

    for level in sorted(options.levels):
        for name in options.methods:
            if any((row["level"], row["method"]) == (level, name) for row in rows):
                continue
            start = before(path, model, rows, level) if name == GRADUAL else model
            reached, times, tuned = tried(methods(options)[name], images, start, scheme, level)
            if name == GRADUAL:
                state = {name: one.contiguous() for name, one in tuned.state_dict().items()}
                replace(stepping_stone(path, level), save(state))
            keep({"level": level, "method": name, "accuracy": reached, "footprint": times})
    searched = {GRADUAL, *(row["method"] for row in rows if "trials" in row)}
    for name in options.methods if options.search is not None else ():
        if name not in searched:
            keep(found(options, images, model, scheme, name))


if __name__ == "__main__":
    main()

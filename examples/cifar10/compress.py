"""Compress a pretrained ResNet-20 on CIFAR-10: faster by filters, then smaller by weights.

    python examples/cifar10/compress.py --data ../shared/data --output cifar10-out

A run that was killed goes on where it stopped; delete the output folder to begin anew.
"""

import argparse
import copy
import logging
from pathlib import Path

import data
import torch
from model import WEIGHTS, pretrained

import nncfx
from nncfx.lc import DCFineTuned
from nncfx.objectives import Maximize, Minimize, footprint, throughput
from nncfx.schemes import Cluster, Compose, FilterPrune, Prune
from nncfx.search import SearchSettings


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--output", type=Path, default=Path("cifar10-out"))
    parser.add_argument("--quick", action="store_true", help="little data, two trials a stage")
    parser.add_argument("--eps", type=float, help="accuracy to lose; 0.02, with --quick 0.1")
    options = parser.parse_args()
    for name in ("data/cifar10_train.npz", "data/cifar10_test.npz", WEIGHTS):
        if not (options.data / name).exists():
            parser.error(
                f"{options.data} has no {name}; examples/data.md says where it comes from"
            )
    return options


def main() -> None:
    """Run both studies, write the model and the report, and say what came out."""
    logging.basicConfig(level=logging.INFO)  # shows progress where there is no terminal
    options = arguments()
    quick = options.quick
    model = pretrained(options.data)
    cifar = data.load(options.data, copy.deepcopy(model), quick=quick)
    eps = options.eps or (0.1 if quick else 0.02)
    common = {
        # L-C needs some hundred mini-batches before its two sets of weights meet; a short
        # fine-tuning with the zeros held gets further in the same time.
        "optimizer": DCFineTuned(
            epochs=1 if quick else 3,
            lr=0.02,
            lr_end=0.002 if quick else 0.0005,
            weight_decay=1e-4,
            recalibration_batches=8,
        ),
        "title": "ResNet-20 on CIFAR-10, faster and smaller",
        "trainloader": cifar.train,
        "valloader": cifar.validation,
        "testloader": cifar.test,
        "criterion": torch.nn.functional.cross_entropy,
        "eps": eps,
        "example_inputs": torch.zeros(16, 3, 32, 32),
    }
    faster = nncfx.Compressor(
        model=model,
        objective=Maximize(throughput),
        # Widths that a CPU computes well. The channels of conv1 run through all shortcuts of the
        # first stage and are sixteen in all: losing one costs more than it saves.
        scheme=FilterPrune(align=8, ignored=("conv1",)),
        margin=eps / 4,
        settings=SearchSettings(max_evaluations=1 if quick else 4, upper=0.4, tolerance=0.05),
        folder=options.output / "throughput",
        **common,
    ).run()
    smaller = nncfx.Compressor(
        after=faster,
        objective=Minimize(footprint),
        scheme=Compose([Prune(), Cluster(bits=5)]),
        settings=SearchSettings(max_evaluations=1 if quick else 4, upper=0.9, tolerance=0.05),
        folder=options.output / "footprint",
        **common,
    ).run()
    result = smaller.save(options.output / "model.nncfx")
    result.evidence.write(options.output / "evidence.json")
    report = nncfx.report.write_report(options.output / "report.html", result.evidence)
    print(result, f"The report: {report}", sep="\n")


if __name__ == "__main__":
    main()

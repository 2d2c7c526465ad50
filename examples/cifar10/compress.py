"""Compress a pretrained ResNet-20 on CIFAR-10: faster by filters, then smaller by weights.

    python examples/cifar10/compress.py --data ../shared/data --output cifar10-out

A run that was killed goes on where it stopped; delete the output folder to begin anew.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import data
import torch
from model import pretrained

import nncfx
from nncfx.compressor.metrics import accuracy
from nncfx.lc import LC, DCFineTuned, Recovery
from nncfx.objectives import Maximize, Minimize, footprint, throughput
from nncfx.schemes import Cluster, Compose, FilterPrune, Prune
from nncfx.search import SearchSettings

PUBLISHED = 0.9173  # of the pretrained network, on all 10,000 test images


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--output", type=Path, default=Path("cifar10-out"))
    parser.add_argument("--quick", action="store_true", help="a part of the data, a few trials")
    parser.add_argument("--eps", type=float, help="accuracy to lose; 0.02, with --quick 0.1")
    return parser.parse_args()


def recovery(*, quick: bool) -> Recovery:
    """Return how accuracy is recovered after filters or weights were removed.

    L-C needs some hundred mini-batches before its two sets of weights meet; where there is no
    time for that, a short fine-tuning gets further.
    """
    if quick:
        return DCFineTuned(epochs=1, lr=0.02, lr_end=0.002, recalibration_batches=4)
    return LC(
        steps=8,
        mb_iterations_per_l=400,
        lr=0.05,
        lr_end=0.001,
        mu_init=0.5,
        mu_multiplier=2.0,
        weight_decay=1e-4,
        recalibration_batches=8,
    )


def main() -> None:
    """Run both studies, write the model and the report, and say what came out."""
    options = arguments()
    model = pretrained(options.data)
    if not options.quick:
        dense = accuracy(model, data.whole_test(options.data))
        print(f"pretrained: {dense:.2%} on all test images (published {PUBLISHED:.2%})")
    cifar = data.load(options.data, quick=options.quick)
    common = {
        "optimizer": recovery(quick=options.quick),
        "trainloader": cifar.train,
        "valloader": cifar.validation,
        "testloader": cifar.test,
        "criterion": torch.nn.functional.cross_entropy,
        "eps": options.eps or (0.1 if options.quick else 0.02),
        "example_inputs": torch.zeros(1 if options.quick else 16, 3, 32, 32),
    }
    settings = SearchSettings(max_evaluations=2 if options.quick else 8)
    faster = nncfx.Compressor(
        model=model,
        objective=Maximize(throughput),
        # Widths that a CPU computes well. The channels of conv1 run through all shortcuts of the
        # first stage and are sixteen in all: losing one costs more than it saves.
        scheme=FilterPrune(align=8, ignored=("conv1",)),
        # the first trial is then at a level that a short recovery can bear
        settings=SearchSettings(max_evaluations=2, upper=0.6) if options.quick else settings,
        folder=options.output / "throughput",
        **common,
    ).run()
    smaller = nncfx.Compressor(
        after=faster,
        objective=Minimize(footprint),
        scheme=Compose([Prune(), Cluster(bits=5)]),
        settings=settings,
        folder=options.output / "footprint",
        **common,
    ).run()
    result = smaller.save(options.output / "model.nncfx")
    evidence = replace(result.evidence, title="ResNet-20 on CIFAR-10, faster and smaller")
    evidence.write(options.output / "evidence.json")
    print(nncfx.report.write_report(options.output / "report.html", evidence))


if __name__ == "__main__":
    main()

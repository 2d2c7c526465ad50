"""Whether the winners of short searches keep their budget on images that chose nothing.

    python benchmarks/honest_search.py simulate
    nice -n 15 python benchmarks/honest_search.py run --data ../shared/data
    python benchmarks/honest_search.py table

`simulate` searches synthetic models whose loss at every level is known, thousands of times, and
counts how often the winner's true loss exceeds the budget: what the margin was chosen on.

`run` searches pretrained ResNets for CIFAR-10, one after the other, each with its own seed. Both
networks have seen all training images, so 2,000 test images, drawn by the seed, are the
validation data (half of them judge the winner only); the other 8,000 choose nothing, and tell the
truth. Every search has a folder with its journal: a run that was stopped goes on. Searches that
are done stand in `docs/data/honest_searches`, and are not run again.
"""

import argparse
import functools
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn import functional as F

import nncfx
from nncfx.compressor import accuracy
from nncfx.lc import DCFineTuned
from nncfx.objectives import Minimize, footprint, macs
from nncfx.schemes import Compose, FilterPrune, Prune, Quantize
from nncfx.search import CAUTION, SearchSettings

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "cifar10"))
import data as cifar
import model as resnets
import networks

Floats: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Law: TypeAlias = tuple[float, float]
EPS = 0.02
RESULTS = Path(__file__).parents[1] / "docs" / "data" / "honest_searches"
SCHEMES = {
    "weights": (Compose([Prune(), Quantize("float16")]), Minimize(footprint), 0.98),
    "filters": (FilterPrune(), Minimize(macs), 0.6),
}


def searches(networks: tuple[str, ...]) -> Iterator[tuple[str, str, int]]:
    """Yield network, scheme and seed of each search: three seeds each."""
    for scheme, seed, network in itertools.product(SCHEMES, (0, 1, 2), networks):
        yield network, scheme, seed


class ChannelsLast:
    """Batches whose images lie channels last, which bfloat16 convolutions of a CPU want."""

    def __init__(self, batches: cifar.Batches) -> None:
        """Hold the batches."""
        self._batches = batches

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the batches of one pass."""
        for images, labels in self._batches:
            yield images.contiguous(memory_format=torch.channels_last), labels

    def __len__(self) -> int:
        """Return the number of batches of a pass."""
        return len(self._batches)


@functools.cache
def _images(folder: Path) -> tuple[Any, Any]:
    """Return test and training images with their labels."""
    return cifar._test(folder), cifar._train(folder)  # noqa: SLF001 (an example of this repository)


def search(network: str, scheme: str, seed: int, options: argparse.Namespace) -> dict[str, object]:
    """Return what one search chose and claimed, and what its winner loses on unseen images."""
    (images, labels), training = _images(options.data)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    seen, unseen = order[: options.validation], order[options.validation :]
    train = cifar.Batches(*training, 64, augment=True, most=options.images)
    train.passes = 1000 * seed
    load = (
        resnets.pretrained
        if network == "resnet20"
        else lambda at: networks.pretrained(network, at)
    )
    dense = load(options.data).to(memory_format=torch.channels_last)
    compress, objective, upper = SCHEMES[scheme]
    start = time.perf_counter()
    result = nncfx.Compressor(
        model=dense,
        objective=objective,
        scheme=compress,
        # little training: what is shown is honesty, at any level
        optimizer=DCFineTuned(epochs=1, lr=0.002, amp="bfloat16", seed=seed),
        criterion=F.cross_entropy,
        trainloader=ChannelsLast(train),
        valloader=[
            (x.contiguous(memory_format=torch.channels_last), y)
            for x, y in cifar.Batches(images[seen], labels[seen], 100)
        ],
        eps=EPS,
        example_inputs=torch.zeros(1, 3, 32, 32),
        runtime="torch",
        threads=1,
        settings=SearchSettings(max_evaluations=3, tolerance=0.05, upper=upper, seed=seed),
        folder=options.output / f"{network}-{scheme}-{seed}",
    ).run()
    truth = cifar.Batches(images[unseen], labels[unseen], 500)
    lost = accuracy(dense, truth) - accuracy(result.model, truth)
    judgement = result.evidence.judgement
    chosen = result.search.chosen.measurement
    return {
        "network": network,
        "scheme": scheme,
        "seed": seed,
        "level": result.level,
        "times smaller": result.evidence.dense.footprint_bytes
        / result.evidence.compressed.footprint_bytes,
        "trials": len(result.search.trials) - 1,
        "loss on what chose": result.reference - chosen.metric,
        "judged loss": judgement.loss,
        "judged interval": judgement.interval,
        "judged winners": judgement.judged,
        "true loss": lost,
        "unseen": len(unseen),
        "seconds": time.perf_counter() - start,
    }


def run(options: argparse.Namespace) -> None:
    """Carry out the searches that are not done yet."""
    torch.set_num_threads(options.threads)
    for network, scheme, seed in searches(tuple(options.networks)):
        path = options.results / f"{network}-{scheme}-{seed}.json"
        if not path.exists():
            found = search(network, scheme, seed, options)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".part").write_text(json.dumps(found, indent=1))
            path.with_suffix(".part").replace(path)
            table(options)


def table(options: argparse.Namespace) -> None:
    """Print the searches that are done, in points, and how many kept their budget."""
    rows = [json.loads(path.read_text()) for path in sorted(options.results.glob("*.json"))]
    print(
        "| network | scheme | seed | level | footprint | loss where chosen | judged | interval | "
        "winners judged | true loss |\n|" + "---|" * 10
    )
    for row in rows:
        low, high = row["judged interval"]
        print(
            f"| {row['network']} | {row['scheme']} | {row['seed']} | {row['level']:.3f} | "
            f"{row['times smaller']:.2f}x | {100 * row['loss on what chose']:.2f} | "
            f"{100 * row['judged loss']:.2f} | {100 * low:.2f} to {100 * high:.2f} | "
            f"{row['judged winners']} | {100 * row['true loss']:.2f} |"
        )
    kept = sum(row["true loss"] <= EPS for row in rows)
    held = sum(a <= row["true loss"] <= b for row in rows for a, b in [row["judged interval"]])
    print(
        f"{kept} of {len(rows)} keep the budget; {held} intervals hold the true loss", flush=True
    )


def simulated(
    generator: np.random.Generator, searches: int, setup: tuple[int, int, float], law: Law
) -> Floats:
    """Return the levels that `searches` bisections of 8 trials choose.

    A model of level s has lost `EPS * (s / crossing) ** power` and answers up to 2.5 % of the
    images otherwise in each direction besides. Half of the images choose; each trial is the best
    of several models of the same true loss, which answer half of the images alike. A winner that
    loses more than the budget on the other half gives way to the next lower level.

    Args:
        generator: of the draws.
        searches: how many are simulated at once.
        setup: images in all, models that a trial is the best of, and standard errors of caution.
        law: crossing and power.
    """
    images, steps, caution = setup
    count = images // 2

    def measured(level: Floats, best_of: int) -> tuple[Floats, Floats]:
        loss = np.minimum(EPS * (level / law[0]) ** law[1], 0.9)
        swapped = np.minimum(0.025 * np.minimum(1.0, 0.2 + loss / EPS), (1 - loss) / 2)
        chances = np.stack([loss + swapped, swapped, 1 - loss - 2 * swapped], axis=-1)
        shared = count // 2 if best_of > 1 else 0
        common = generator.multinomial(shared, chances)
        tries = common + generator.multinomial(count - shared, chances, (best_of, len(level)))
        best = (tries[..., 0] - tries[..., 1]).argmin(0)
        lost, gained, _ = tries[best, np.arange(len(level))].T
        # as `paired_difference` of shares, from counts
        a, b = (lost + 1) / (count + 2), (gained + 1) / (count + 2)
        return (lost - gained) / count, np.sqrt((a + b - (a - b) ** 2) / (count + 2))

    low, high = np.zeros(searches), np.ones(searches)
    kept = [low]
    for _ in range(8):
        level = (low + high) / 2
        loss, error = measured(level, steps)
        inside = loss + caution * error <= EPS
        low, high = np.where(inside, level, low), np.where(inside, high, level)
        kept.append(low)
    chosen, accepted = low, measured(low, 1)[0] <= EPS
    for lower in reversed(kept):
        # the levels that were feasible rise, so that the next lower one is the one before
        moved = ~accepted & (lower < chosen)
        chosen = np.where(moved, lower, chosen)
        accepted |= moved & (measured(chosen, 1)[0] <= EPS)
    return chosen


def simulate(options: argparse.Namespace) -> None:
    """Print how often the true loss exceeds the budget, over images, steps and cautions."""
    print(
        "| images | trials are the best of | caution | beyond the budget | level of the crossing |"
        "\n|" + "---|" * 5
    )
    laws = ((0.6, 3.0), (0.8, 8.0))
    for images, steps in itertools.product((1000, 2000, 10_000), (1, 5, 30)):
        for caution in (0.0, 1.0, 1.28, 1.645, CAUTION):
            generator = np.random.default_rng(0)
            levels = np.concatenate(
                [
                    simulated(generator, options.searches, (images, steps, caution), law) / law[0]
                    for law in laws
                ]
            )
            beyond = [(part > 1 + 1e-9).mean() for part in np.split(levels, len(laws))]
            print(
                f"| {images} | {steps} | {caution} | {100 * max(beyond):.1f} % | "
                f"{levels.mean():.3f} |",
                flush=True,
            )


def main() -> None:
    """Do what the first word says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("simulate", "run", "table"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--output", type=Path, default=Path("out/honest"), help="of journals")
    parser.add_argument("--results", type=Path, default=RESULTS, help="what is in it is done")
    parser.add_argument("--searches", type=int, default=2000, help="simulated for each row")
    parser.add_argument("--images", type=int, default=640, help="training images of an epoch")
    parser.add_argument("--networks", nargs="+", default=["resnet20", "resnet56"])
    parser.add_argument("--validation", type=int, default=2000, help="half of them judge")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    {"simulate": simulate, "run": run, "table": table}[options.what](options)


if __name__ == "__main__":
    main()

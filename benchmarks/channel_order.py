"""Quality and time of the channel order, against its optimum, the gather baseline and UPSCALE.

Quality: random instances of up to 8 channels and 2 to 5 consumers; the optimum comes from trying
every subset of consumers. Time: 64 consumers of 2,048 channels, easy and adversarial. With
`--reference DIR`, the published implementation takes part in the first table; get it with
`pip install --no-deps --target DIR apple-upscale`.

    python benchmarks/channel_order.py [--instances 2000] [--reference DIR]
"""

import argparse
import importlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from nncfx.export import channel_order, copied_channels
from nncfx.graph.consecutive_ones import consecutive_order

Keeps = list[set[int]]
Orderer = Callable[[Keeps], list[int]]

CONSUMERS = 64
CHANNELS = 2048
DENSE_LAYER = 32
HALF = 0.5


def instances(count: int, rng: np.random.Generator) -> Iterator[Keeps]:
    """Yield random small instances: one set of kept channels per consumer."""
    for _ in range(count):
        size, consumers = int(rng.integers(4, 9)), int(rng.integers(2, 6))
        density = rng.uniform(0.3, 0.8)
        yield [set(np.flatnonzero(rng.random(size) < density).tolist()) for _ in range(consumers)]


def least_copied(keeps: Keeps) -> int:
    """Return the optimum: all but the dearest subset of consumers that fit together."""
    sets = [sum(1 << channel for channel in keep) for keep in keeps]
    served = (
        sum(members.bit_count() for members in chosen)
        for count in range(len(sets) + 1)
        for chosen in itertools.combinations(sets, count)
        if consecutive_order(chosen) is not None
    )
    return sum(map(len, keeps)) - max(served)


def reference_from(directory: str) -> Orderer:
    """Return the ordering of the `apple-upscale` installed in `directory`."""
    sys.path.insert(0, directory)
    reorder = importlib.import_module("upscale.pruning.reorder")

    def order(keeps: Keeps) -> list[int]:
        named = {consumer: keep for consumer, keep in enumerate(keeps) if keep}
        return list(reorder.compute_reordering(set(named), named))

    return order


def report_quality(count: int, orderers: dict[str, Orderer]) -> None:
    """Print how each orderer does on the same random instances."""
    drawn = list(instances(count, np.random.default_rng(0)))
    least = [least_copied(keeps) for keeps in drawn]
    free = least.count(0)
    print(f"{count} instances, {free} have an order without copies; optimum {sum(least)} copied\n")
    print("| order | optimal | of those without copies | copied | of the optimum |")
    print("|---|---|---|---|---|")
    for name, orderer in orderers.items():
        copied = [copied_channels(orderer(keeps), keeps) for keeps in drawn]
        pairs = list(zip(copied, least, strict=True))
        optimal = sum(c == best for c, best in pairs)
        found = sum(c == best == 0 for c, best in pairs)
        ratio = sum(copied) / sum(least)
        print(f"| {name} | {optimal} | {found} | {sum(copied):.0f} | {ratio:.3f} |")


def arc(start: int, length: int) -> set[int]:
    """Return `length` neighbours on the ring of all channels."""
    return {(start + step) % CHANNELS for step in range(length)}


def families(rng: np.random.Generator) -> Iterator[tuple[str, Keeps]]:
    """Yield kinds of instances of full size, each with its name."""
    starts = rng.integers(0, CHANNELS, CONSUMERS).tolist()
    third, each = CHANNELS // 3, CHANNELS // CONSUMERS

    def drawn(size: int, pool: int = CHANNELS) -> Keeps:
        return [set(rng.permutation(pool)[:size].tolist()) for _ in range(CONSUMERS)]

    yield "random halves", drawn(CHANNELS // 2)
    yield "random 32 each", drawn(32)
    yield "random 8 each", drawn(8)
    yield "random pairs of 32", drawn(2, 32)
    yield "random triples of 64", drawn(3, 64)
    yield "8 random halves, 8 times each", drawn(CHANNELS // 2)[:8] * 8
    yield "nested", [set(range((i + 1) * each)) for i in range(CONSUMERS)]
    yield "all but one channel", [set(range(CHANNELS)) - {i} for i in range(CONSUMERS)]
    yield "arcs of a third of a ring", [arc(i * each, third) for i in range(CONSUMERS)]
    yield "intervals, shuffled", [arc(start // 2, 300) for start in starts]
    yield "intervals and one stray", [arc(s // 2, 40) | {int(s) // 3} for s in starts]


def dense_block(rng: np.random.Generator) -> tuple[list[range], Keeps]:
    """Return 64 producers of 32 channels, and consumers that read all before them, half pruned."""
    producers = [
        range(start, start + DENSE_LAYER) for start in range(0, CHANNELS, CHANNELS // CONSUMERS)
    ]
    keeps = [
        set(np.flatnonzero(rng.random(producer.stop) < HALF).tolist()) for producer in producers
    ]
    return producers, keeps


def report_time() -> None:
    """Print processor seconds and copied channels for each kind of large instance."""
    rng = np.random.default_rng(0)
    print(f"\n| {CONSUMERS} consumers of {CHANNELS} channels | seconds | gathered | copied |")
    print("|---|---|---|---|")
    for name, keeps in families(rng):
        row(name, keeps, None)
    producers, keeps = dense_block(rng)
    row("dense block, halves", keeps, producers)


def row(name: str, keeps: Keeps, producers: list[range] | None) -> None:
    """Order one instance and print its row."""
    start = time.process_time()
    order = channel_order(keeps, size=CHANNELS, producers=producers)
    seconds = time.process_time() - start
    copied = copied_channels(order, keeps)
    print(f"| {name} | {seconds:.2f} | {sum(map(len, keeps))} | {copied:.0f} |", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=2000)
    parser.add_argument("--reference", metavar="DIR")
    arguments = parser.parse_args()
    orderers: dict[str, Orderer] = {
        "as they stand": lambda keeps: sorted(set().union(*keeps)),
        "nncfx": channel_order,
    }
    if arguments.reference:
        orderers["apple-upscale"] = reference_from(arguments.reference)
    report_quality(arguments.instances, orderers)
    report_time()


if __name__ == "__main__":
    main()

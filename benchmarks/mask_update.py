"""Time the update of a global magnitude mask, and a training step under it.

python benchmarks/mask_update.py --weights 60000000 --level 0.9 --threads 2
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from pytorchcv.models.resnet_cifar import resnet20_cifar10

from nncfx import create_compressed_model
from nncfx.schemes import magnitude_mask

_ITEM = {"algorithm": "magnitude_sparsity", "params": {"sparsity_target": 0.9}}


def best_seconds(function: Callable[[], object], repeats: int) -> float:
    """Return the shortest of `repeats` runs of `function`, in seconds."""
    times = []
    for index in range(repeats):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
        print(f"  run {index + 1} of {repeats}: {times[-1]:.3f} s", flush=True)
    return min(times)


def network_weights(count: int) -> dict[str, torch.Tensor]:
    """Return normal weights of about `count` entries in fifty layers of unlike size and scale."""
    generator = torch.Generator().manual_seed(0)
    shares = torch.linspace(1, 10, 50)
    sizes = (shares / shares.sum() * count).long().tolist()
    return {
        f"layer{i}": torch.randn(size, generator=generator) / (i + 1)
        for i, size in enumerate(sizes)
    }


def training_step(images: torch.Tensor, *, compressed: bool) -> Callable[[], None]:
    """Return a function that does one step of SGD on ResNet-20 for CIFAR."""
    torch.manual_seed(0)
    model = resnet20_cifar10()
    labels = torch.arange(len(images)) % 10
    config = {"compression": [_ITEM] if compressed else []}
    controller, model = create_compressed_model(model, config, images[:1])
    controller.scheduler.epoch_step()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def sparse_step() -> None:
        controller.scheduler.step()
        loss = torch.nn.functional.cross_entropy(model(images), labels) + controller.loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def plain_step() -> None:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return sparse_step if compressed else plain_step


def step_ratio(rounds: int, warm_up: int = 2) -> float:
    """Return the time of a training step with magnitude sparsity over that of a plain one.

    Batch 64; both steps alternate, and the median ratio counts.
    """
    images = torch.randn(64, 3, 32, 32)
    pair = training_step(images, compressed=False), training_step(images, compressed=True)
    ratios = []
    for _ in range(rounds + warm_up):
        marks = [time.perf_counter()]
        for step in pair:
            step()
            marks.append(time.perf_counter())
        ratios.append((marks[2] - marks[1]) / (marks[1] - marks[0]))
    return statistics.median(ratios[warm_up:])


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--weights", type=int, default=60_000_000)
    parser.add_argument("--level", type=float, default=0.9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    weights = network_weights(arguments.weights)
    level = arguments.level
    rows = {
        "magnitude_mask, s": best_seconds(
            lambda: magnitude_mask(weights, level), arguments.repeats
        ),
        "magnitude_mask (normed), s": best_seconds(
            lambda: magnitude_mask(weights, level, normed=True), arguments.repeats
        ),
        "training step, sparse / plain": step_ratio(arguments.rounds),
    }
    print(f"\n| {arguments.weights:,} weights, level {level}, {arguments.threads} threads | |")
    print("|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value:.3f} |")


if __name__ == "__main__":
    main()

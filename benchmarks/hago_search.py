"""Hago on CIFAR-10: what a trial costs, and what greedy search needs.

python benchmarks/hago_search.py trial --data ../shared/data
python benchmarks/hago_search.py greedy --data ../shared/data
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "cifar10"))

import data
from model import ResNet
from safetensors.torch import load_file

from nncfx import hago
from nncfx.hago.search.search import SearchSpace, search_space
from nncfx.quantization.ranges.observation import tracked
from nncfx.targets import Hardware, hardware_named

WEIGHTS = {3: "resnet20_cifar10_optA", 9: "resnet56_cifar10_optA"}
Batches = list[tuple[torch.Tensor, torch.Tensor]]


def main() -> None:
    """Run what is asked for and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["trial", "greedy"])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--blocks", type=int, default=3, choices=list(WEIGHTS))
    parser.add_argument("--hardware", default="onnxruntime")
    parser.add_argument("--thresholds", default="avg_range")
    parser.add_argument("--calibration", type=int, default=128, help="images to search with")
    parser.add_argument("--test", type=int, default=2000, help="other images to judge by")
    parser.add_argument("--batch", type=int, default=128, help="images of a forward")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--log", type=Path, help="journal of the greedy search")
    options = parser.parse_args()
    model = ResNet(options.blocks)
    model.load_state_dict(
        load_file(options.data / f"weights/{WEIGHTS[options.blocks]}.safetensors")
    )
    calibration, test = batches(options)
    graph = hago.prepare_graph(model.eval(), calibration[0][0][:1])
    {"trial": trial, "greedy": greedy}[options.what](
        graph, hardware_named(options.hardware), calibration, test, options
    )


def batches(options: argparse.Namespace) -> tuple[Batches, Batches]:
    """Return calibration and test images: of the test set, as the network has seen the others."""
    images, labels = data._test(options.data)  # noqa: SLF001 (the example's own module)
    images = (images.float() - data.MEAN) / data.STD

    def cut(start: int, stop: int) -> Batches:
        parts = (one[start:stop].split(options.batch) for one in (images, labels))
        return list(zip(*parts, strict=True))

    first = options.calibration
    return cut(0, first), cut(first, min(first + options.test, len(images)))


def space_of(
    graph: hago.QuantGraph, hardware: Hardware, calibration: Batches, thresholds: str
) -> SearchSpace:
    """Return the search space with these thresholds."""
    return search_space(graph, hardware, calibration, hago.QuantizeSettings(thresholds=thresholds))


def trial(
    graph: hago.QuantGraph,
    hardware: Hardware,
    calibration: Batches,
    _: Batches,
    options: argparse.Namespace,
) -> None:
    """Print the CPU time of a trial against that of the plain forward, in turns.

    "against plain" is the median over the turns: what slows the machine down slows both in a turn.
    """
    space = space_of(graph, hardware, calibration, options.thresholds)
    evaluator = hago.Evaluator(graph, hardware, space.strategy, calibration, hago.top1_accuracy)
    plain = ResNet(options.blocks).eval()
    subjects: dict[str, Callable[[], float]] = {
        "plain forward": lambda: hago.top1_accuracy(plain, calibration),
        "batch norms folded": lambda: hago.top1_accuracy(graph.model, calibration),
        "trial, simulated": lambda: evaluator(space.strategy.bits),
    }
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in tracked(range(options.repeats), "Repeats"):
        for name, run in subjects.items():
            started = time.process_time()
            run()
            times[name].append(time.process_time() - started)
    base = times["plain forward"]
    print("| | CPU ms | against plain |\n|---|---:|---:|")
    for name, values in times.items():
        ratio = statistics.median(a / b for a, b in zip(values, base, strict=True))
        print(f"| {name} | {1000 * statistics.median(values):.0f} | {ratio:.2f} |")


def greedy(
    graph: hago.QuantGraph,
    hardware: Hardware,
    calibration: Batches,
    test: Batches,
    options: argparse.Namespace,
) -> None:
    """Print what a greedy search finds, its trials and its time."""
    clock, cpu = time.perf_counter(), time.process_time()
    seen: set[tuple[int, ...]] = set()

    def counted(strategy: hago.Strategy, accuracy: float) -> float:
        seen.add(strategy.bits)
        return accuracy

    strategy, accuracy = hago.search_quantize_strategy(
        graph,
        hardware,
        calibration,
        log=options.log,
        settings=hago.QuantizeSettings(thresholds=options.thresholds, score=counted),
    )
    clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
    found = hago.create_quantizer(graph, hardware, strategy).simulate(torch.float32)
    print("| edges | trials evaluated | seconds | CPU seconds | calibration | test | float |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    print(
        f"| {len(strategy.bits)} | {len(seen)} | {clock:.0f} | {cpu:.0f} | {accuracy:.2%} | "
        f"{hago.top1_accuracy(found, test):.2%} | {hago.top1_accuracy(graph.model, test):.2%} |"
    )


if __name__ == "__main__":
    main()

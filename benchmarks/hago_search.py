"""Hago on CIFAR-10: what a trial costs, what greedy search needs, and the mixed-precision front.

python benchmarks/hago_search.py trial --data ../shared/data
python benchmarks/hago_search.py greedy --data ../shared/data
python benchmarks/hago_search.py front --data ../shared/data --blocks 9 --test 10000
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "cifar10"))

import data
from model import ResNet
from safetensors.torch import load_file

from nncfx import hago
from nncfx.hago.costs import (
    allocate_bits,
    average_weight_bits,
    cost_table,
    weight_bytes,
)
from nncfx.hago.search import SearchSpace, search_space
from nncfx.hago.sensitivity import edge_sensitivities
from nncfx.hardware import Hardware, hardware_named
from nncfx.quantization.observation import tracked

WEIGHTS = {3: "resnet20_cifar10_optA", 9: "resnet56_cifar10_optA"}
Batches = list[tuple[torch.Tensor, torch.Tensor]]


def main() -> None:
    """Run what is asked for and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["trial", "greedy", "front"])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--blocks", type=int, default=3, choices=list(WEIGHTS))
    parser.add_argument("--hardware", default="onnxruntime")
    parser.add_argument("--thresholds", default="avg_range")
    parser.add_argument("--calibration", type=int, default=128, help="images to search with")
    parser.add_argument("--test", type=int, default=2000, help="other images to judge by")
    parser.add_argument("--harm", type=int, default=128, help="images to measure harm with")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--picture", type=Path, help="where to draw the front, as SVG")
    parser.add_argument("--log", type=Path, help="journal of the greedy search")
    options = parser.parse_args()
    model = ResNet(options.blocks)
    model.load_state_dict(
        load_file(options.data / f"weights/{WEIGHTS[options.blocks]}.safetensors")
    )
    calibration, test = batches(options)
    graph = hago.prepare_graph(model.eval(), calibration[0][0][:1])
    {"trial": trial, "greedy": greedy, "front": front}[options.what](
        graph, hardware_named(options.hardware), calibration, test, options
    )


def batches(options: argparse.Namespace) -> tuple[Batches, Batches]:
    """Return calibration and test images: of the test set, as the network has seen the others."""
    images, labels = data._test(options.data)  # noqa: SLF001 (the example's own module)
    images = (images.float() - data.MEAN) / data.STD

    def cut(start: int, stop: int) -> Batches:
        return list(zip(images[start:stop].split(128), labels[start:stop].split(128), strict=True))

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
    """Print the CPU time of a trial against that of the plain forward, in turns."""
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
    base = statistics.median(times["plain forward"])
    print("| | CPU ms | against plain |\n|---|---:|---:|")
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"| {name} | {1000 * middle:.0f} | {middle / base:.2f} |")


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


def front(
    graph: hago.QuantGraph,
    hardware: Hardware,
    calibration: Batches,
    test: Batches,
    options: argparse.Namespace,
) -> None:
    """Print accuracy against size: bits by integer program, and the same bits everywhere."""
    started = time.process_time()
    space = space_of(graph, hardware, calibration, options.thresholds)
    evaluator = hago.Evaluator(graph, hardware, space.strategy, calibration, hago.top1_accuracy)
    costs = cost_table(space.strategy, space.choices, lambda one: weight_bytes(graph, one))
    # what costs nothing keeps the most bits
    weighty = [
        each if min(one.values()) < 0 else each[:1]
        for each, one in zip(space.choices, costs, strict=True)
    ]
    space = replace(space, choices=tuple(weighty))
    images, labels = (torch.cat(parts) for parts in zip(*calibration, strict=True))
    few = [(images[: options.harm], labels[: options.harm])]
    judge = replace(evaluator, batches=few)
    harm = edge_sensitivities(judge, space.choices, options.processes)
    print(f"Sensitivities: {time.process_time() - started:.0f} s of CPU time", file=sys.stderr)
    dense = hago.top1_accuracy(graph.model, test)
    print(f"float32: {dense:.2%}\n")
    print("| bits | mean weight bits | kB | calibration | test |\n|---|---:|---:|---:|---:|")
    points: list[tuple[str, float, float]] = []
    for name, strategy in tracked(list(candidates(graph, space, harm, costs)), "Points"):
        model = evaluator.simulated(strategy.bits)
        kilobytes, accuracy = weight_bytes(graph, strategy) / 1000, hago.top1_accuracy(model, test)
        points.append((name, kilobytes, accuracy))
        print(
            f"| {name} | {average_weight_bits(graph, strategy):.2f} | {kilobytes:.0f} | "
            f"{hago.top1_accuracy(model, calibration):.2%} | {accuracy:.2%} |",
            flush=True,
        )
    if options.picture is not None:
        draw(points, dense, options.picture)


def draw(points: list[tuple[str, float, float]], dense: float, path: Path) -> None:
    """Draw accuracy against size: name, kilobytes and accuracy of each point."""
    figure = Figure(figsize=(6, 4))
    axes = figure.subplots()
    for label, mark, wanted in (("uniform", "s--", True), ("integer program", "o-", False)):
        found = sorted(one[1:] for one in points if one[0].endswith("everywhere") == wanted)
        axes.plot([x for x, _ in found], [100 * y for _, y in found], mark, label=label)
    axes.axhline(100 * dense, color="grey", linestyle=":", label="float32")
    axes.set_xlabel("weights and biases, kB")
    axes.set_ylabel("top-1 accuracy, %")
    axes.legend()
    figure.savefig(path, format="svg", bbox_inches="tight")


def candidates(
    graph: hago.QuantGraph,
    space: SearchSpace,
    harm: list[dict[int, float]],
    costs: list[dict[int, float]],
) -> Iterator[tuple[str, hago.Strategy]]:
    """Yield uniform and allocated strategies, with activations at their most bits."""
    full = sum(
        graph.model.get_parameter(graph.nodes[edge.source].name).numel()
        for edge in (graph.edges[one] for one in space.strategy.topology.quantized_edges)
        if not graph.nodes[edge.source].is_call and edge.port == 1
    )
    for mean in (5.0, 4.5, 6.0, 4.25, 7.0, 5.5):
        budget = (mean - 8) * full / 8
        bits = allocate_bits(space.choices, harm, costs, budget)
        yield f"at most {mean:g} on average", replace(space.strategy, bits=bits)
    for bits in (8, 7, 6, 5, 4):
        uniform = tuple(bits if bits in each else each[0] for each in space.choices)
        yield f"{bits} everywhere", replace(space.strategy, bits=uniform)


if __name__ == "__main__":
    main()

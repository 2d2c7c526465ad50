"""Hago on CIFAR-10: what a trial costs, what greedy search needs, and the mixed-precision front.

python benchmarks/hago_search.py trial --data ../shared/data
python benchmarks/hago_search.py greedy --data ../shared/data
python benchmarks/hago_search.py front --data ../shared/data --blocks 9 --test 10000
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "cifar10"))

import data
from model import ResNet
from safetensors.torch import load_file
from torch.nn import functional

from nncfx import hago
from nncfx.hago import NodeKind
from nncfx.hago.search import SearchSpace, search_space
from nncfx.hago.sensitivity import divergence
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
    parser.add_argument("--harm", choices=["hessian", "kl"], default="hessian")
    parser.add_argument("--probes", type=int, default=4, help="of the Hessian's trace")
    parser.add_argument("--alone", type=int, default=2000, help="images for weights alone")
    parser.add_argument("--sizes", type=float, nargs="+", default=[5, 6, 4.5, 7, 4, 4.25, 8])
    parser.add_argument("--batch", type=int, default=128, help="images of a forward")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--picture", type=Path, help="where to draw the front, as SVG")
    parser.add_argument("--log", type=Path, help="journal of the greedy search, or of the points")
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
    """Print quality against size: bits by integer program, and the same bits everywhere.

    Weights have the thresholds of least squared error for their bits in both. Activations keep
    the most bits.
    """
    space = space_of(graph, hardware, calibration, options.thresholds)
    weighty = tuple(
        each if graph.nodes[graph.edges[number].source].kind is NodeKind.CONSTANT else each[:1]
        for each, number in zip(
            space.choices, space.strategy.topology.quantized_edges, strict=True
        )
    )
    space = replace(space, choices=weighty)
    evaluator = hago.Evaluator(
        *(graph, hardware, space.strategy, calibration, hago.top1_accuracy),
        fitted=hago.FittedWeights(graph),
    )
    started = time.process_time()
    harm = (
        hago.hessian_sensitivities(evaluator, space.choices, options.probes)
        if options.harm == "hessian"
        else hago.edge_sensitivities(evaluator, space.choices, options.processes)
    )
    print(f"Sensitivities: {time.process_time() - started:.0f} s of CPU time", file=sys.stderr)
    judge = Judge(graph, evaluator, test, options.alone)
    print(f"float32: {judge.accuracy:.2%}\n")
    print(
        "| weight bits | mean | kB | weights alone, nats | whole, nats | as float32 | top-1 |\n"
        "|---|---:|---:|---:|---:|---:|---:|"
    )
    points = []
    for name, bits in tracked(list(candidates(graph, space, harm, options.sizes)), "Points"):
        points.append(judge.judged(name, bits, options.log))
        print(points[-1], flush=True)
    if options.picture is not None:
        draw(points, options.picture)


@dataclass(frozen=True)
class Point:
    """A strategy of the front; `str` is a row of the table.

    Attributes:
        name: What it is.
        mean: Bits of a weight.
        kilobytes: Of weights and biases.
        alone: Divergence from the logits in float32, activations in float, nats.
        divergence: The same of the whole.
        agreement: Share of images with the class of the model in float32.
        accuracy: Top-1.
    """

    name: str
    mean: float
    kilobytes: float
    alone: float
    divergence: float
    agreement: float
    accuracy: float

    def __str__(self) -> str:
        """Return a row of the table."""
        return (
            f"| {self.name} | {self.mean:.2f} | {self.kilobytes:.0f} | {self.alone:.5f} | "
            f"{self.divergence:.4f} | {self.agreement:.2%} | {self.accuracy:.2%} |"
        )


class Judge:
    """Judges bits on test images; those that a journal has are not judged again."""

    def __init__(
        self, graph: hago.QuantGraph, evaluator: hago.Evaluator, test: Batches, alone: int
    ) -> None:
        """Compare with the graph in floats: on `test`, weights alone on its first `alone`."""
        self._graph, self._evaluator, self._test = graph, evaluator, test
        with torch.no_grad():
            self._logits = [(images, graph.model(images)) for images, _ in test]
        self._alone = self._logits[: math.ceil(alone / len(test[0][1]))]
        expected = torch.cat([one for _, one in self._logits])
        self._labels = torch.cat([labels for _, labels in test])
        self._expected = expected
        self.accuracy = float((expected.argmax(1) == self._labels).float().mean())

    def judged(self, name: str, bits: tuple[int, ...], journal: Path | None) -> Point:
        """Return what `bits` are worth, and write it to the journal."""
        if journal is not None and journal.exists():
            for line in journal.read_text().splitlines():
                record = json.loads(line)
                if tuple(record["bits"]) == bits:
                    return Point(**{**record["point"], "name": name})
        point = self._judge(name, bits)
        if journal is not None:
            with journal.open("a") as file:
                file.write(json.dumps({"bits": bits, "point": asdict(point)}) + "\n")
        return point

    def _judge(self, name: str, bits: tuple[int, ...]) -> Point:
        strategy = self._evaluator.strategy_of(bits)
        model = self._evaluator.simulated(bits)
        with torch.no_grad():
            found = [model(images) for images, _ in self._test]
        logits = torch.cat(found)
        classes = logits.argmax(1)
        model.restrict_to(
            [
                number
                for number in strategy.topology.quantized_edges
                if self._graph.nodes[self._graph.edges[number].source].kind is NodeKind.CONSTANT
            ]
        )
        return Point(
            name,
            hago.average_weight_bits(self._graph, strategy),
            hago.weight_bytes(self._graph, strategy) / 1000,
            divergence(model, self._alone),
            float(
                functional.kl_div(
                    logits.log_softmax(1),
                    self._expected.log_softmax(1),
                    reduction="batchmean",
                    log_target=True,
                )
            ),
            float((classes == self._expected.argmax(1)).float().mean()),
            float((classes == self._labels).float().mean()),
        )


def draw(points: list[Point], path: Path) -> None:
    """Draw divergence and errors against size."""
    figure = Figure(figsize=(8, 3.6))
    left, right = figure.subplots(1, 2)
    for label, mark, wanted in (("uniform", "s--", True), ("mixed", "o-", False)):
        found = sorted(
            (one for one in points if one.name.endswith("everywhere") == wanted),
            key=lambda one: one.kilobytes,
        )
        sizes = [one.kilobytes for one in found]
        left.plot(sizes, [one.alone for one in found], mark, label=label)
        right.plot(sizes, [100 * one.accuracy for one in found], mark, label=label)
    left.set_yscale("log")
    left.set_ylabel("divergence of weights alone, nats")
    right.set_ylabel("top-1 accuracy, %")
    for axes in (left, right):
        axes.set_xlabel("weights and biases, kB")
        axes.legend()
    figure.savefig(path, format="svg", bbox_inches="tight")


def candidates(
    graph: hago.QuantGraph,
    space: SearchSpace,
    harm: list[dict[int, float]],
    sizes: list[float],
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the same bits everywhere, and allocated ones of the same size or on average."""
    costs = hago.cost_table(
        space.strategy, space.choices, lambda one: hago.weight_bytes(graph, one)
    )
    for mean in sizes:
        low = math.floor(mean)
        uniform = tuple(low if low in each else each[0] for each in space.choices)
        finer = tuple(low + 1 if low + 1 in each else each[0] for each in space.choices)
        size, next_size = (
            sum(one[bits] for one, bits in zip(costs, each, strict=True))
            for each in (uniform, finer)
        )
        if mean == low:
            yield f"{low} everywhere", uniform
        if 4 < mean < 8:  # noqa: PLR2004 (at the ends there is one choice only)
            budget = size + (mean - low) * (next_size - size)
            yield f"mixed, {mean:g}", hago.allocate_bits(space.choices, harm, costs, budget)


if __name__ == "__main__":
    main()

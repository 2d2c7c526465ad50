"""The front of searched bits on CIFAR-10: quality against size and against measured latency.

python benchmarks/hago_front.py --data ../shared/data --points FOLDER [--table] [--picture FILE]
python benchmarks/hago_front.py --data ../shared/data --points F --latency float32 "smoothed 6"

Bits of weights come from an integer program over what each choice does alone to the outputs on
the calibration images, or are the same everywhere; activations have the most bits. Both clip
weights at the least squared error for their bits. Logits of each point are kept in the folder,
and not computed again; `--table` computes nothing. "Better" is said of pairs: of the same test
images, the mean difference and its standard error. With `--views` an image is seen mirrored and
shifted as well, as in training: it counts once, by the mean divergence of its views, which
differ by how activations happen to be rounded. Between whole bits, "the same everywhere" is
what lies on the straight line between the neighbours in a picture with a logarithmic axis.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from hago_search import WEIGHTS, Batches, batches, space_of
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "cifar10"))

from model import ResNet
from safetensors.torch import load_file

import nncfx
from nncfx import hago
from nncfx.hago import NodeKind
from nncfx.hago.strategy.choice_space import Choices
from nncfx.quantization.ranges.observation import tracked
from nncfx.runtimes import BuildOptions, TimingPlan, runtime_named, time_sessions
from nncfx.targets import hardware_named

FLOAT = "float32"
SHIFTS = ((0, 0), (2, 2), (-2, 2), (2, -2), (-2, -2))
"""Of each two views, one of them mirrored: down and to the right, in pixels."""


@dataclass(frozen=True)
class Searched:
    """What all points have in common."""

    graph: hago.QuantGraph
    space: hago.SearchSpace
    evaluator: hago.Evaluator
    costs: list[dict[int, float]]

    def uniform(self, bits: int) -> tuple[int, ...]:
        """Return these bits for every weight."""
        return tuple(bits if bits in each else each[0] for each in self.space.choices)

    def budget(self, mean: float) -> float:
        """Return what so many bits everywhere cost; between whole numbers a share of both."""
        low = math.floor(mean)
        ends = (self.uniform(low), self.uniform(math.ceil(mean)))
        sizes = [sum(a[b] for a, b in zip(self.costs, each, strict=True)) for each in ends]
        return sizes[0] + (mean - low) * (sizes[1] - sizes[0])


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--points", type=Path, required=True, help="folder that keeps the points")
    parser.add_argument("--blocks", type=int, default=9, choices=list(WEIGHTS))
    parser.add_argument("--hardware", default="onnxruntime")
    parser.add_argument("--thresholds", default="quantile_range")
    parser.add_argument("--calibration", type=int, default=128, help="images to search with")
    parser.add_argument("--test", type=int, default=9872, help="other images to judge by")
    parser.add_argument("--batch", type=int, default=128, help="images of a forward")
    parser.add_argument("--harm", choices=["smoothed", "kl", "hessian"], default="smoothed")
    parser.add_argument("--views", type=int, default=1, help="of each image, at most 10")
    parser.add_argument("--sizes", type=float, nargs="+", default=[6, 5, 7, 4.5, 5.5, 6.5, 4.25])
    parser.add_argument("--uniform", type=int, nargs="+", default=[4, 5, 6, 7, 8])
    parser.add_argument("--table", action="store_true", help="only of what the folder has")
    parser.add_argument("--picture", type=Path, help="where to draw the front, as SVG")
    parser.add_argument("--latency", nargs="+", metavar="POINT", help="time these, exported")
    parser.add_argument("--runtime", default="openvino", help="which times them")
    return parser.parse_args()


def main() -> None:
    """Compute the points that are missing, or time those there are, and print the table."""
    options = arguments()
    options.points.mkdir(exist_ok=True, parents=True)
    calibration, test = batches(options)
    labels = torch.cat([one for _, one in test])
    if not options.table:
        searched = searched_model(options, calibration)
        if options.latency:
            time_points(searched, options, calibration)
        else:
            compute(searched, options, test)
    rows = read_points(options.points, labels)
    print_table(rows)
    if options.picture is not None:
        latencies = options.points / "latency.json"
        times = json.loads(latencies.read_text()) if latencies.exists() else {}
        draw(rows, times, options.picture)


def searched_model(options: argparse.Namespace, calibration: Batches) -> Searched:
    """Return the trained network with the choices of its weights' bits."""
    model = ResNet(options.blocks)
    file = options.data / f"weights/{WEIGHTS[options.blocks]}.safetensors"
    model.load_state_dict(load_file(file))
    graph = hago.prepare_graph(model.eval(), calibration[0][0][:1])
    hardware = hardware_named(options.hardware)
    space = space_of(graph, hardware, calibration, options.thresholds)
    numbers = space.strategy.topology.quantized_edges
    is_weight = [graph.nodes[graph.edges[one].source].kind is NodeKind.CONSTANT for one in numbers]
    choices = tuple(
        each if of_weight else each[:1]
        for each, of_weight in zip(space.choices, is_weight, strict=True)
    )
    space = replace(space, choices=choices)
    evaluator = hago.Evaluator(
        *(graph, hardware, space.strategy, calibration, hago.top1_accuracy),
        fitted=hago.FittedWeights(graph),
    )
    costs = hago.cost_table(space.strategy, choices, lambda one: hago.weight_bytes(graph, one))
    return Searched(graph, space, evaluator, costs)


def harms(searched: Searched, options: argparse.Namespace) -> list[dict[int, float]]:
    """Return what each choice does alone; kept in the folder of points."""
    path = options.points / f"harm-{options.harm}.json"
    if path.exists():
        found = json.loads(path.read_text())
        return [{int(bits): float(harm) for bits, harm in one.items()} for one in found]
    measure: dict[str, Callable[[hago.Evaluator, Choices], list[dict[int, float]]]] = {
        "smoothed": hago.smoothed_sensitivities,
        "kl": hago.edge_sensitivities,
        "hessian": hago.hessian_sensitivities,
    }
    started = time.process_time()
    harm = measure[options.harm](searched.evaluator, searched.space.choices)
    print(f"Harm: {time.process_time() - started:.0f} s of CPU time", file=sys.stderr)
    path.write_text(json.dumps(harm))
    return harm


def candidates(
    searched: Searched, options: argparse.Namespace
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and the bits of each point."""
    for bits in options.uniform:
        yield f"uniform {bits}", searched.uniform(bits)
    harm = harms(searched, options)
    for mean in options.sizes:
        bits = hago.allocate_bits(
            searched.space.choices, harm, searched.costs, searched.budget(mean)
        )
        yield f"{options.harm} {mean:g}", bits


def compute(searched: Searched, options: argparse.Namespace, test: Batches) -> None:
    """Write the logits of each point and view that the folder has not got."""

    def keep(name: str, model: torch.nn.Module, bits: tuple[int, ...], sizes: list[float]) -> None:
        path = options.points / f"{name}.pt"
        logits, known, _ = torch.load(path) if path.exists() else ([], bits, sizes)
        if known != bits:
            sys.exit(f"{path} has other bits: it is of another search. Take another folder.")
        with torch.no_grad():
            for number in range(len(logits), options.views):
                seen = torch.cat([model(view(images, number)) for images, _ in test])
                logits = [*logits, seen]
                torch.save((logits, bits, sizes), path)

    kilobytes = sum(one.numel() for one in searched.graph.model.parameters()) * 4 / 1000
    keep(FLOAT, searched.graph.model, (), [32, kilobytes])
    for name, bits in tracked(list(candidates(searched, options)), "Points"):
        strategy = searched.evaluator.strategy_of(bits)
        sizes = [
            hago.average_weight_bits(searched.graph, strategy),
            hago.weight_bytes(searched.graph, strategy) / 1000,
        ]
        keep(name, searched.evaluator.simulated(bits), bits, sizes)


def view(images: Tensor, number: int) -> Tensor:
    """Return n x c x h x w images as they are, or mirrored if odd, and shifted; filled with 0."""
    down, right = SHIFTS[number // 2]
    height, width = images.shape[-2:]
    shifted = F.pad(images, (2, 2, 2, 2))[..., 2 - down :, 2 - right :][..., :height, :width]
    return shifted.flip(-1) if number % 2 else shifted


@dataclass(frozen=True)
class Row:
    """A point, judged image by image.

    Attributes:
        name: Kind and mean bits of a weight.
        sizes: The latter as reached, and kB of all parameters.
        divergence: v x n: from the model in float32 in each view, nats.
        agrees: v x n: 1 where the class is that of the model in float32, else 0.
        right: v x n: 1 where it is that of the label, else 0.
    """

    name: str
    sizes: list[float]
    divergence: Tensor
    agrees: Tensor
    right: Tensor

    @property
    def kind(self) -> str:
        """How the bits were chosen."""
        return self.name.split()[0]


def read_points(folder: Path, labels: Tensor) -> dict[str, Row]:
    """Return the points in the folder by name, the smallest first."""
    real = torch.stack(torch.load(folder / f"{FLOAT}.pt")[0])
    rows = []
    for path in folder.glob("*.pt"):
        seen, _, sizes = torch.load(path)
        found = torch.stack(seen)
        expected, classes = real[: len(found)], found.argmax(2)
        differs = expected.log_softmax(2) - found.log_softmax(2)
        divergence = (expected.softmax(2) * differs).sum(2)
        agrees, right = classes == expected.argmax(2), classes == labels
        rows.append(Row(path.stem, sizes, divergence, agrees.float(), right.float()))
    return {one.name: one for one in sorted(rows, key=lambda one: (one.sizes[0], one.name))}


def print_table(rows: dict[str, Row]) -> None:
    """Print each point, and by how much it differs from the same bits everywhere, in pairs."""
    print(
        "| weight bits | mean | kB | divergence, nats | views | as uniform | as float32 | top-1 | "
        "as uniform |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for one in rows.values():
        views, further, righter = len(one.divergence), "", ""
        ends = [] if one.kind in ("uniform", FLOAT) else neighbours(rows, one)
        if ends:
            views = min(views, *(len(end.divergence) for end in ends))
            low, high = (end.divergence[:views].mean(0) for end in ends)
            same = between(low, high, share(one))
            further = paired(one.divergence[:views].mean(0) - same, 1, 5)
            low, high = (end.right[:views].mean(0) for end in ends)
            same = low + share(one) * (high - low)
            righter = paired(one.right[:views].mean(0) - same, 100, 2)
        print(
            f"| {one.name} | {one.sizes[0]:.2f} | {one.sizes[1]:.0f} | "
            f"{one.divergence[:views].mean():.5f} | {views} | {further} | "
            f"{100 * one.agrees[:views].mean():.2f} % | "
            f"{100 * one.right[:views].mean():.2f} % | {righter} |"
        )


def share(row: Row) -> float:
    """Return how far the size asked for is above a whole number of bits."""
    return float(row.name.split()[1]) % 1


def neighbours(rows: dict[str, Row], row: Row) -> list[Row]:
    """Return the same bits everywhere at the whole sizes below and above; none if not known."""
    size = float(row.name.split()[1])
    names = [f"uniform {end:g}" for end in (math.floor(size), math.ceil(size))]
    return [rows[name] for name in names] if all(name in rows for name in names) else []


def between(low: Tensor, high: Tensor, share: float) -> Tensor:
    """Return for each image what has the geometric mean of two means as its mean.

    That is the linear part of the geometric mean about the two, so that its spread is right too.
    """
    means = low.mean(), high.mean()
    middle = means[0] ** (1 - share) * means[1] ** share
    return middle * ((1 - share) * low / means[0] + share * high / means[1])


def paired(difference: Tensor, factor: float, digits: int) -> str:
    """Return the mean of a difference and its standard error."""
    mean = factor * float(difference.mean())
    error = factor * float(difference.std()) / math.sqrt(len(difference))
    return f"{mean:+.{digits}f} ± {error:.{digits}f}"


def time_points(searched: Searched, options: argparse.Namespace, calibration: Batches) -> None:
    """Time points of the folder, exported, in turns: one image, one thread, in milliseconds."""
    runtime, inputs = runtime_named(options.runtime), calibration[0][0][:1]
    sessions = {}
    for name in options.latency:
        path = options.points / f"{name}.pt"
        file = path.with_suffix(".onnx")
        if not file.exists():
            model: torch.nn.Module = searched.graph.model
            if path.stem != FLOAT:
                strategy = searched.evaluator.strategy_of(torch.load(path)[1])
                hardware = searched.evaluator.hardware
                quantizer = hago.create_quantizer(searched.graph, hardware, strategy)
                model = quantizer.exportable()
            nncfx.export_onnx(model, file, inputs, target=options.runtime)
        sessions[path.stem] = runtime.build(file, BuildOptions(threads=1))
    found = time_sessions(sessions, inputs, plan=TimingPlan(seconds=6.0))
    times = {name: one.median_ms for name, one in found.items()}
    (options.points / "latency.json").write_text(json.dumps(times, indent=1))
    print("\n".join(f"{name}: {one.median_ms:.2f} ms" for name, one in found.items()))


def draw(rows: dict[str, Row], times: dict[str, float], path: Path) -> None:
    """Draw divergence and accuracy against size, and divergence against latency if known."""
    figure = Figure(figsize=(12 if times else 8, 3.8))
    axes = figure.subplots(1, 3 if times else 2)
    base = rows[FLOAT]
    kinds = [("uniform", "s--", "same bits everywhere"), ("smoothed", "o-", "searched")]
    for kind, mark, label in kinds:
        found = [one for one in rows.values() if one.kind == kind]
        sizes = [one.sizes[1] for one in found]
        axes[0].plot(sizes, [float(one.divergence[0].mean()) for one in found], mark, label=label)
        kept = [100 * float(one.right[0].mean()) for one in found]
        errors = [
            100 * float((one.right[0] - base.right[0]).std()) / one.right.shape[1] ** 0.5
            for one in found
        ]
        axes[1].errorbar(sizes, kept, errors, fmt=mark, capsize=2, label=label)
        timed = [one for one in found if one.name in times]
        if timed:
            axes[2].plot(
                [times[one.name] for one in timed],
                [float(one.divergence[0].mean()) for one in timed],
                mark[0],
                label=label,
            )
    axes[1].axhline(100 * float(base.right[0].mean()), color="grey", lw=0.8, label=FLOAT)
    axes[0].set_yscale("log")
    axes[0].set_ylabel("divergence from float32, nats")
    axes[1].set_ylabel("top-1, %, ± standard error of the loss")
    for one in axes[:2]:
        one.set_xlabel("weights and biases, kB")
    if times:
        axes[2].plot([times[FLOAT]], [0], "k*", label=FLOAT)
        axes[2].set_xlim(0, 1.1 * max(times.values()))
        axes[2].set_ylabel("divergence from float32, nats")
        axes[2].set_xlabel("measured latency of an image, ms")
    for one in axes:
        one.legend()
    figure.tight_layout()
    figure.savefig(path, format="svg", bbox_inches="tight")


if __name__ == "__main__":
    main()

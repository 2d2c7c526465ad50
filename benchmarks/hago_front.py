"""The front of searched bits on CIFAR-10: quality against size and against measured latency.

python benchmarks/hago_front.py --data ../shared/data --points FOLDER [--table] [--picture FILE]
python benchmarks/hago_front.py --data ../shared/data --points FOLDER --latency float32 "kl 6"

Bits of weights come from an integer program over what each choice does alone to the outputs on
the calibration images, or are the same everywhere; activations have the most bits. Both clip
weights at the least squared error for their bits. Logits of each point are kept in the folder,
and not computed again; `--table` computes nothing. "Better" is said of pairs: of the same test
images, the mean difference and its standard error.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from hago_search import WEIGHTS, Batches, batches, space_of
from matplotlib.figure import Figure
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "cifar10"))

from model import ResNet
from safetensors.torch import load_file

import nncfx
from nncfx import hago
from nncfx.hago import NodeKind
from nncfx.hardware import hardware_named
from nncfx.quantization.observation import tracked
from nncfx.runtimes import BuildOptions, TimingPlan, runtime_named, time_sessions

FLOAT = "float32"


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
    parser.add_argument("--harm", choices=["kl", "hessian"], default="kl")
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
        return [{int(bits): harm for bits, harm in one.items()} for one in found]
    measure = {"kl": hago.edge_sensitivities, "hessian": hago.hessian_sensitivities}
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
    """Write the logits of each point that the folder has not got."""

    def keep(name: str, model: torch.nn.Module, bits: tuple[int, ...], sizes: list[float]) -> None:
        with torch.no_grad():
            logits = torch.cat([model(images) for images, _ in test])
        torch.save((logits, bits, sizes), options.points / f"{name}.pt")

    if not (options.points / f"{FLOAT}.pt").exists():
        kilobytes = sum(one.numel() for one in searched.graph.model.parameters()) * 4 / 1000
        keep(FLOAT, searched.graph.model, (), [32, kilobytes])
    for name, bits in tracked(list(candidates(searched, options)), "Points"):
        path = options.points / f"{name}.pt"
        if path.exists():
            if torch.load(path)[1] != bits:
                sys.exit(f"{path} has other bits: it is of another search. Take another folder.")
            continue
        strategy = searched.evaluator.strategy_of(bits)
        sizes = [
            hago.average_weight_bits(searched.graph, strategy),
            hago.weight_bytes(searched.graph, strategy) / 1000,
        ]
        keep(name, searched.evaluator.simulated(bits), bits, sizes)


@dataclass(frozen=True)
class Row:
    """A point, judged image by image.

    Attributes:
        name: Kind and mean bits of a weight.
        sizes: The latter as reached, and kB of all parameters.
        divergence: n: from the model in float32, nats.
        agrees: n: whether the class is that of the model in float32.
        right: n: whether it is that of the label.
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
    real = torch.load(folder / f"{FLOAT}.pt")[0]
    expected = real.log_softmax(1)
    rows = []
    for path in folder.glob("*.pt"):
        logits, _, sizes = torch.load(path)
        found = logits.log_softmax(1)
        divergence = (expected.exp() * (expected - found)).sum(1)
        classes = logits.argmax(1)
        rows.append(
            Row(path.stem, sizes, divergence, classes == real.argmax(1), classes == labels)
        )
    return {one.name: one for one in sorted(rows, key=lambda one: (one.sizes[0], one.name))}


def print_table(rows: dict[str, Row]) -> None:
    """Print each point, and by how much it differs from the same bits everywhere, in pairs."""
    print(
        "| weight bits | mean | kB | divergence, nats | as uniform | as float32 | top-1 | "
        "as uniform |\n|---|---:|---:|---:|---:|---:|---:|---:|"
    )
    for one in rows.values():
        same = rows.get(f"uniform {one.name.split()[-1]}", one)
        further, righter = "", ""
        if same is not one:
            further = paired(one.divergence - same.divergence, 1, 4)
            righter = paired(one.right.float() - same.right.float(), 100, 2)
        print(
            f"| {one.name} | {one.sizes[0]:.2f} | {one.sizes[1]:.0f} | "
            f"{one.divergence.mean():.4f} | {further} | {100 * one.agrees.float().mean():.2f} % | "
            f"{100 * one.right.float().mean():.2f} % | {righter} |"
        )


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
    kinds = [("uniform", "s--", "same bits everywhere"), ("kl", "o-", "searched")]
    for kind, mark, label in kinds:
        found = [one for one in rows.values() if one.kind == kind]
        sizes = [one.sizes[1] for one in found]
        axes[0].plot(sizes, [float(one.divergence.mean()) for one in found], mark, label=label)
        lost = [100 * float(one.right.float().mean()) for one in found]
        errors = [
            100 * float((one.right.float() - base.right.float()).std()) / len(one.right) ** 0.5
            for one in found
        ]
        axes[1].errorbar(sizes, lost, errors, fmt=mark, capsize=2, label=label)
        timed = [one for one in found if one.name in times]
        if timed:
            axes[2].plot(
                [times[one.name] for one in timed],
                [float(one.divergence.mean()) for one in timed],
                mark[0],
                label=label,
            )
    axes[1].axhline(100 * float(base.right.float().mean()), color="grey", lw=0.8, label=FLOAT)
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

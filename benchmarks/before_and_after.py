"""Compare this checkout with an earlier one: the files that they export, and what steps cost.

Each has a process of its own, and they take turns. A file counts as equal where its outputs are
computed by the same operators, attributes and constants from the same inputs; names and the order
of nodes do not count. Quantizers' ranges are the minima and maxima of four random examples, since
defaults have changed. Times are CPU seconds on one thread, the ratio is the median of the turns.
Instructions are counted by callgrind (Debian package valgrind) in a step that ran before; they
vary by 1 %, where times on a shared machine vary by 20 %.

    git worktree add ../before c2b2089
    python benchmarks/before_and_after.py files ../before
    python benchmarks/before_and_after.py times ../before --turns 5
    python benchmarks/before_and_after.py instructions ../before --steps wrap
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any, Final

PYTORCHCV: Final = """
    alexnet bamresnet bisenet cgnet contextnet darknet densenet_cifar diracnetv2 edanet
    efficientnet enet espnetv2 fastscnn fdmobilenet ghostnet hardnet igcv3 mnasnet mobilenet
    mobilenetv2 mobilenetv3 nin_cifar peleenet preresnet_cifar proxylessnas regnet resnet
    resnet_cifar seresnet_cifar shufflenet shufflenetv2 sinet squeezenet xdensenet_cifar
"""
TRANSFORMERS: Final = (
    *("BertModel", "ConvNextModel", "DistilBertModel", "GPT2LMHeadModel", "LlamaForCausalLM"),
    *("MobileViTModel", "Qwen2ForCausalLM", "SegformerModel", "T5Model", "ViTModel"),
)
WORKER: Final = Path(__file__).with_name("checkout_worker.py")
KINDS: Final = ("float", "int8 onnxruntime", "int8 openvino", "w8")
STEPS: Final = ("wrap", "channels", "thin", "quantize", "export")


class Checkout:
    """A process that works with the nncfx of one checkout."""

    def __init__(self, folder: Path, counts: str | None = None) -> None:
        """Start it, under callgrind if a folder for its files is given."""
        environment = {**os.environ, "PYTHONPATH": str(folder.resolve())}
        command = [sys.executable, str(WORKER)]
        if counts is not None:
            tool = ("valgrind", "--tool=callgrind", "--instr-atstart=no")
            command = [*tool, f"--callgrind-out-file={counts}/counts", *command, counts]
        self._process = subprocess.Popen(  # noqa: S603 (a script of ours)
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )

    def ask(self, *request: str) -> dict[str, Any]:
        """Return its answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101, PT018 (pipes were asked for)
        print(json.dumps(request), file=stdin, flush=True)
        answer: dict[str, Any] = json.loads(stdout.readline())
        return answer


def difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return in words what two answers about files differ in."""
    if "error" in before or "error" in after:
        return f"{before.get('error', 'exported')} -> {after.get('error', 'exported')}"
    if before["hash"] == after["hash"]:
        return "equal"
    old, new = Counter(before["operators"]), Counter(after["operators"])
    moved = [f"{new[one] - old[one]:+d} {one}" for one in old | new if old[one] != new[one]]
    lost = (Counter(before["constants"]) - Counter(after["constants"])).total()
    return f"{', '.join(moved) or 'operators as before'}; {lost} constants differ"


def compare_files(before: Checkout, after: Checkout, options: argparse.Namespace) -> None:
    """Print where files differ, and how many are equal."""
    counts: Counter[str] = Counter()
    for name, kind in pairs(options.networks, options.kinds):
        found = difference(before.ask("files", name, kind), after.ask("files", name, kind))
        counts["equal" if found == "equal" else "other"] += 1
        print(f"| {name} | {kind} | {found} |", flush=True)
    print(f"{counts['equal']} of {counts.total()} files are equal")


def compare_times(before: Checkout, after: Checkout, options: argparse.Namespace) -> None:
    """Print the ratio of the times of each step: this checkout over the earlier one."""
    print("| network | step | before, s | after over before | least to most |")
    print("|---|---|---:|---:|---:|")
    ratios: dict[str, list[float]] = {}
    for name, step in pairs(options.networks, options.steps):
        turns = []
        for turn in range(options.turns + 1):
            old, new = (one.ask("times", name, step) for one in (before, after))
            if turn and "seconds" in old and "seconds" in new:  # the first one imports
                turns.append((old["seconds"], new["seconds"]))
        if not turns:
            print(f"| {name} | {step} | {old} {new} | | |")
            continue
        ratio = sorted(new / old for old, new in turns)
        seconds = statistics.median(old for old, _ in turns)
        ratios.setdefault(step, []).append(statistics.median(ratio))
        print(
            f"| {name} | {step} | {seconds:.2f} | {statistics.median(ratio):.2f} | "
            f"{ratio[0]:.2f} to {ratio[-1]:.2f} |",
            flush=True,
        )
    print_medians(ratios)


def compare_instructions(options: argparse.Namespace) -> None:
    """Print the ratio of the instructions of each step: this checkout over the earlier one."""
    print("| network | step | before, millions | after over before |")
    print("|---|---|---:|---:|")
    ratios: dict[str, list[float]] = {}
    folders = (options.before, Path(__file__).parent.parent)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        asked = [Checkout(*each) for each in zip(folders, (one, other), strict=True)]
        for name, step in pairs(options.networks, options.steps):
            with ThreadPoolExecutor() as both:  # counts do not depend on what else runs
                found = [
                    *both.map(Checkout.ask, asked, *map(repeat, ("instructions", name, step)))
                ]
            if any("error" in each for each in found):
                print(f"| {name} | {step} | {found} | |")
                continue
            old, new = (each["instructions"] for each in found)
            ratios.setdefault(step, []).append(new / old)
            print(f"| {name} | {step} | {old / 1e6:.1f} | {new / old:.3f} |", flush=True)
    print_medians(ratios)


def print_medians(ratios: dict[str, list[float]]) -> None:
    """Print the median ratio of each step."""
    for step, found in ratios.items():
        print(f"{step}: median {statistics.median(found):.3f} over {len(found)} networks")


def pairs(networks: list[str], others: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each network with each of the others."""
    for name in networks:
        for other in others:
            yield name, other


def main() -> None:
    """Compare two checkouts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("files", "times", "instructions"))
    parser.add_argument("before", type=Path, help="the earlier checkout")
    parser.add_argument("--networks", nargs="+", default=[*PYTORCHCV.split(), *TRANSFORMERS])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    if options.command == "instructions":
        compare_instructions(options)
        return
    before, after = Checkout(options.before), Checkout(Path(__file__).parent.parent)
    (compare_files if options.command == "files" else compare_times)(before, after, options)


if __name__ == "__main__":
    main()

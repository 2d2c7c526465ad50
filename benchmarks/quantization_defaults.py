"""Our default int8 beside the static quantizers of ONNX Runtime and nncf, on pretrained networks.

Each quantizes the same network on the same 300 training images; the files run in ONNX Runtime.
SQNR and agreement compare the logits with those of the float file; p is McNemar's (exact, two
sides) for top-1 against our default. CPU seconds are those of the quantizer alone, in this process
from the network (ours) or the float file (ONNX Runtime's) on, the median of `--turns` behind one
that is not counted; the last column is our time divided by theirs. nncf runs in a Python of its
own, whose start and imports count. "family.model" is a model of pytorchcv with random weights
(`pretrained.Settled`); `packaged.PACKAGED` names those that come in packages. A call continues the
journal of an earlier one:

    OMP_NUM_THREADS=1 python benchmarks/quantization_defaults.py --data ../shared/data \
        --journal defaults.jsonl [--only resnet20-A] [--images 2000] [--turns 3] \
        [--methods MinMax] [--nncf-python /path/to/python]
"""

import argparse
import json
import resource
import statistics
import tempfile
from collections.abc import Callable
from math import comb
from pathlib import Path
from typing import Any

from onnxruntime.quantization import CalibrationMethod
from pretrained import PRETRAINED
from ptq_accuracy import Subject, nearest, nncf_file, onnxruntime_file
from torch import Tensor, nn

OURS = "nncfx"
METHODS = ("MinMax", "Entropy", "Percentile")


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--journal", type=Path, required=True, help="keeps results, line by line")
    parser.add_argument("--only", nargs="+", default=list(PRETRAINED), metavar="NETWORK")
    parser.add_argument("--nncf-python", help="a Python that has nncf 3.4")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--turns", type=int, default=1, help="in which each quantizer is timed")
    parser.add_argument("--images", type=int, default=10_000, help="of the test set")
    return parser.parse_args()


def cpu_seconds() -> float:
    """Return the processor time of this process and of those it waited for."""
    used = [resource.getrusage(one) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def quantizers(subject: Subject) -> dict[str, Callable[[], Path | nn.Module]]:
    """Return who quantizes, by label: what returns a file, or a network to export."""
    found: dict[str, Callable[[], Path | nn.Module]] = {OURS: lambda: nearest(subject)}
    for name in subject.options.methods:
        method = CalibrationMethod[name]
        found[f"ONNX Runtime, {name}"] = lambda method=method: onnxruntime_file(subject, method)
    if subject.options.nncf_python:
        found["nncf"] = lambda: nncf_file(subject)
    return found


def timed(quantizers: dict[str, Callable[[], Path | nn.Module]], turns: int) -> dict[str, float]:
    """Return the median of the CPU seconds of each quantizer; they take turns."""
    found: dict[str, list[float]] = {label: [] for label in quantizers}
    for _ in range(turns):
        for label, quantizer in quantizers.items():
            begin = cpu_seconds()
            quantizer()
            found[label].append(cpu_seconds() - begin)
    return {label: statistics.median(one) for label, one in found.items()}


def measured(subject: Subject, reference: Tensor, made: Path | nn.Module) -> dict[str, Any]:
    """Return the distance of the logits (n x 10) from those in float."""
    logits = subject.logits(made if isinstance(made, Path) else subject.exported(made))
    noise = (logits - reference).double().square().sum()
    found = logits.argmax(1)
    return {
        "sqnr": float(10 * (reference.double().square().sum() / noise).log10()),
        "agreement": float((found == reference.argmax(1)).double().mean()) * 100,
        "wrong": (found != subject.labels).nonzero().flatten().tolist(),
        "images": len(logits),
    }


def mcnemar(ours: list[int], others: list[int]) -> float:
    """Return the exact two-sided p of McNemar's test for two lists of wrong images."""
    lost, won = len(set(ours) - set(others)), len(set(others) - set(ours))
    count = lost + won
    tail = sum(comb(count, one) for one in range(min(lost, won) + 1))
    return min(1.0, tail / 2 ** (count - 1)) if count else 1.0


def main() -> None:
    """Measure what the journal has not yet, and print a table of what it has."""
    options = arguments()
    found: dict[tuple[str, str], dict[str, Any]] = {}
    if options.journal.exists():
        for line in options.journal.read_text().splitlines():
            network, label, row = json.loads(line)
            found[network, label] = row
    for network in options.only:
        with tempfile.TemporaryDirectory() as folder:
            subject = Subject(network, options, Path(folder))
            everyone = quantizers(subject)
            missing = {one: everyone[one] for one in everyone if (network, one) not in found}
            if not missing:
                continue
            reference = subject.logits(subject.float_file)
            # a file of one quantizer takes the place of the last one's
            rows = {one: measured(subject, reference, missing[one]()) for one in missing}
            for label, seconds in timed(missing, options.turns).items():
                found[network, label] = rows[label] | {"seconds": seconds}
                with options.journal.open("a") as file:
                    file.write(json.dumps([network, label, found[network, label]]) + "\n")
    print("| network | quantizer | dB | agree | top-1 | p | CPU s | ours / theirs |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for (network, label), row in found.items():
        top = 100 - 100 * len(row["wrong"]) / row["images"]
        p = "" if label == OURS else f"{mcnemar(found[network, OURS]['wrong'], row['wrong']):.2f}"
        print(
            f"| {network} | {label} | {row['sqnr']:.1f} | {row['agreement']:.2f} | {top:.2f} "
            f"| {p} | {row['seconds']:.2f} "
            f"| {found[network, OURS]['seconds'] / row['seconds']:.2f} |"
        )


if __name__ == "__main__":
    main()

"""Does 8-bit quantization lose by another draw of calibration images? Ours, and its peers.

Every draw takes 300 training images at random; the three quantizers see the same ones, and their
files run in ONNX Runtime on the same test images. One image of the test set is 0.01 points, less
than what the draw decides: "not worse" is judged on means over draws, and on the noise of the
logits (in dB to the float network's), which does not hang on the few images that are close calls.
A call goes on where another one with the same journal was ended:

    python benchmarks/calibration_draws.py --data ../shared/data --journal draws.jsonl \
        --nncf-python PYTHON [--only lenet5] [--draws 10] [--images 2000]
"""

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from pretrained import PRETRAINED
from ptq_accuracy import CALIBRATION_IMAGES, Subject, nearest, nncf_file, onnxruntime_file

QUANTIZERS: dict[str, Callable[[Subject], Path]] = {
    "nncfx": lambda subject: subject.exported(nearest(subject)),
    "ONNX Runtime": onnxruntime_file,
    "nncf 3.4": nncf_file,
}
Result = tuple[str, str, int, float, float]


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--journal", type=Path, required=True, help="keeps results, line by line")
    parser.add_argument("--only", nargs="+", default=["lenet5"], choices=list(PRETRAINED))
    parser.add_argument("--nncf-python", required=True, help="a Python that has nncf 3.4")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--images", type=int, default=10_000, help="of the test set")
    return parser.parse_args()


def measure(name: str, options: argparse.Namespace, done: list[Result]) -> None:
    """Add what is missing of a network to the journal."""
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(name, options, Path(folder))
        images = subject.source.train(options.data)[0]
        exact = subject.logits(subject.float_file)
        for draw in range(options.draws):
            generator = torch.Generator().manual_seed(draw)
            chosen = torch.randperm(len(images), generator=generator)[:CALIBRATION_IMAGES]
            subject.calibration = images[chosen]
            for label, make in QUANTIZERS.items():
                if any(one[:3] == (name, label, draw) for one in done):
                    continue
                logits = subject.logits(make(subject))
                top1 = (logits.argmax(1) == subject.labels).double().mean().item() * 100
                noise = (logits - exact).double().square().mean() / exact.double().square().mean()
                row = (name, label, draw, top1, -10 * math.log10(noise))
                with options.journal.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def journaled(journal: Path) -> list[Result]:
    """Return network, quantizer, draw, top-1 and decibels of each line of a journal."""
    if not journal.exists():
        return []
    return [tuple(json.loads(one)) for one in journal.read_text().splitlines()]


def main() -> None:
    """Measure what the journal has not yet, and print means and their standard errors."""
    options = arguments()
    for name in options.only:
        measure(name, options, journaled(options.journal))
    found = journaled(options.journal)
    print("| network | quantizer | draws | top-1 | less than nncfx's | logits, dB |")
    print("|---|---|---:|---:|---:|---:|")
    for name in dict.fromkeys(one[0] for one in found):
        by_draw = {one[1:3]: one for one in found if one[0] == name}
        for label in QUANTIZERS:
            pairs = [
                (by_draw[label, draw], by_draw["nncfx", draw])
                for draw in range(options.draws)
                if (label, draw) in by_draw and ("nncfx", draw) in by_draw
            ]
            cells = [
                shown([one[3] for one, _ in pairs]),
                shown([ours[3] - one[3] for one, ours in pairs]),
                shown([one[4] for one, _ in pairs]),
            ]
            print(f"| {name} | {label} | {len(pairs)} | {' | '.join(cells)} |")


def shown(values: list[float]) -> str:
    """Return a mean and its standard error as text."""
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{np.mean(values):.3f} ± {error:.3f}"


if __name__ == "__main__":
    main()

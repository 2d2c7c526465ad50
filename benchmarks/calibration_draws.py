"""Does 8-bit quantization lose by another draw of calibration images? Ours, and its peers.

Every draw takes 300 training images at random; the three quantizers see the same ones, and their
files run in ONNX Runtime on the same test images. One image of the test set is 0.01 points, less
than what the draw decides: "not worse" is judged on means over draws, on the noise of the logits
(in dB to the float network's), which does not hang on the few images that are close calls, and by
a paired test of whole images: McNemar's, where all draws of an image change sides together, as
the same close call decides them. Its p is the chance of a difference as large from equal
quantizers. A call goes on where another one with the same journal was ended:

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
from numpy.typing import NDArray
from pretrained import PRETRAINED
from ptq_accuracy import CALIBRATION_IMAGES, Subject, nearest, nncf_file, onnxruntime_file

from nncfx.storage.formats.line_file import read_lines

QUANTIZERS: dict[str, Callable[[Subject], Path]] = {
    "nncfx": lambda subject: subject.exported(nearest(subject)),
    "ONNX Runtime": onnxruntime_file,
    "nncf 3.4": nncf_file,
}
Result = tuple[str, str, int, float, float, list[int]]
FLOAT = "float"


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
        if not any(one[:2] == (name, FLOAT) for one in done):
            write(options.journal, (name, FLOAT, 0, *judged(subject, exact, exact)))
        for draw in range(options.draws):
            generator = torch.Generator().manual_seed(draw)
            chosen = torch.randperm(len(images), generator=generator)[:CALIBRATION_IMAGES]
            subject.calibration = images[chosen]
            for label, make in QUANTIZERS.items():
                if any(one[:3] == (name, label, draw) for one in done):
                    continue
                found = judged(subject, subject.logits(make(subject)), exact)
                write(options.journal, (name, label, draw, *found))


def judged(
    subject: Subject, logits: torch.Tensor, exact: torch.Tensor
) -> tuple[float, float, list[int]]:
    """Return top-1 in percent, decibels to `exact`, and the images that are taken for others."""
    wrong = (logits.argmax(1) != subject.labels).nonzero().flatten().tolist()
    noise = (logits - exact).double().square().mean() / exact.double().square().mean()
    decibels = -10 * math.log10(noise) if noise else math.inf
    return 100 * (1 - len(wrong) / len(logits)), decibels, wrong


def write(journal: Path, row: Result) -> None:
    """Add a line to a journal."""
    read_lines(journal).append(json.dumps(row).encode() + b"\n")


def journaled(journal: Path) -> list[Result]:
    """Return network, quantizer, draw, top-1, decibels and wrong images of a journal's lines."""
    return [tuple(json.loads(one)) for one in read_lines(journal).lines]


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
    print("| network | against | only ours right | only theirs | images | p by images |")
    print("|---|---|---:|---:|---:|---:|")
    for name in dict.fromkeys(one[0] for one in found):
        for label in (*list(QUANTIZERS)[1:], FLOAT):
            ahead = images_ahead(found, name, label)
            sides = int(ahead[ahead > 0].sum()), -int(ahead[ahead < 0].sum())
            print(
                f"| {name} | {label} | {sides[0]} | {sides[1]} | {np.count_nonzero(ahead)} ",
                end="",
            )
            print(f"| {sign_test(ahead):.3f} |")


def images_ahead(found: list[Result], name: str, label: str) -> NDArray[np.int64]:
    """Return, for each test image, in how many draws more than `label` nncfx is right."""
    rows = [one for one in found if one[0] == name]
    theirs = {one[2]: one[5] for one in rows if one[1] == label}
    ahead = np.zeros(1 + max((image for one in rows for image in one[5]), default=0), np.int64)
    for _, quantizer, draw, _, _, wrong in rows:
        other = theirs.get(0 if label == FLOAT else draw)
        if quantizer == "nncfx" and other is not None:
            np.add.at(ahead, other, 1)
            np.add.at(ahead, wrong, -1)
    return ahead


def sign_test(ahead: NDArray[np.int64]) -> float:
    """Return how often random signs of the images give as large a sum, two-sided, exactly.

    The sum of independent +a or -a has a distribution that is a convolution of pairs.
    """
    sizes = np.abs(ahead[ahead != 0])
    chances = np.ones(1)
    for size in sizes:
        pair = np.zeros(2 * size + 1)
        pair[[0, -1]] = 0.5
        chances = np.convolve(chances, pair)
    sums = np.arange(-sizes.sum(), sizes.sum() + 1)
    return float(chances[np.abs(sums) >= abs(ahead.sum())].sum())


def shown(values: list[float]) -> str:
    """Return a mean and its standard error as text."""
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{np.mean(values):.3f} ± {error:.3f}"


if __name__ == "__main__":
    main()

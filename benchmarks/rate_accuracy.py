"""Networks rounded without training, by `nncfx.storage.compress` and by NNCodec: bytes, accuracy.

For each quantization parameter NNCodec rounds and codes all parameters with its dependent
quantization; ours gets at most `--share` of those bytes. Both are read back, and judged on all
test images. See `nncodec_files.py` for the environment of NNCodec.

    python benchmarks/rate_accuracy.py --data ../shared/data --nncodec nnc/bin/python
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nncodec_files import IMPORTS
from pretrained import PRETRAINED, Pretrained
from torch import nn

import nncfx
from nncfx.storage import Bytes, compress

THEIRS = (
    IMPORTS
    + """
for line in sys.stdin:
    path, qp, options = json.loads(line)
    with np.load(path) as file:
        tensors = {name: file[name] for name in file.files}
    data = nnc.compress(tensors, bitstream_path=None, return_bitstream=True, qp=qp, use_dq=True,
                        row_skipping=True, **options)
    np.savez(path, **nnc.decompress(data))
    print(json.dumps(len(data)), flush=True)
"""
)
OPTIONS: tuple[dict[str, bool], ...] = ({}, {"opt_qp": True})
CALIBRATION = 512


def accuracy(model: nn.Module, test: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Return the share of right answers in percent."""
    images, labels = test
    model.eval()
    with torch.inference_mode():
        parts = [model(part).argmax(1) for part in images.split(500)]
    return 100 * float((torch.cat(parts) == labels).double().mean())


class NNCodec:
    """NNCodec in an interpreter of its own."""

    def __init__(self, python: str, folder: str) -> None:
        """Start it."""
        self._path = Path(folder) / "it.npz"
        self._process = subprocess.Popen(  # noqa: S603 (the interpreter that was asked for)
            [python, "-c", THEIRS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def coded(self, model: nn.Module, qp: int, options: dict[str, bool]) -> int:
        """Replace the parameters of `model` by what NNCodec makes of them; return its bytes."""
        assert self._process.stdin  # noqa: S101 (piped above)
        assert self._process.stdout  # noqa: S101 (piped above)
        state = model.state_dict()
        floats = {name: one.numpy() for name, one in state.items() if one.is_floating_point()}
        np.savez(self._path, **floats)
        print(json.dumps([str(self._path), qp, options]), file=self._process.stdin, flush=True)
        size = int(json.loads(self._process.stdout.readline()))
        with np.load(self._path) as file:
            found = {name: torch.from_numpy(file[name]) for name in file.files}
        model.load_state_dict({**state, **found})
        return size


def rows(options: argparse.Namespace, network: Pretrained) -> Iterator[dict[str, Any]]:
    """Yield a row for each setting of NNCodec."""
    test = network.test(options.data)
    images, _ = network.train(options.data, CALIBRATION)
    with tempfile.TemporaryDirectory() as folder:
        other = NNCodec(options.nncodec, folder)
        for qp in options.qp:
            for extra in OPTIONS:
                theirs = network.load(options.data)
                size = other.coded(theirs, qp, extra)
                start = time.process_time()
                budget = Bytes(int(options.share * size))
                found = compress(network.load(options.data), images.split(128), budget=budget)
                seconds = time.process_time() - start
                path = Path(folder) / "ours.nncfx"
                saved = found.save(path)
                ours = nncfx.storage.load(path, network.load(options.data))
                yield {
                    "setting": f"{qp}{', opt_qp' if extra else ''}",
                    "theirs": (size, accuracy(theirs, test)),
                    "ours": (saved.size_bytes, accuracy(ours, test)),
                    "seconds": seconds,
                }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nncodec", required=True, help="a Python that has nncodec")
    parser.add_argument("--network", default="resnet56-A", choices=sorted(PRETRAINED))
    parser.add_argument("--qp", type=int, nargs="*", default=[-26, -22, -20])
    parser.add_argument("--share", type=float, default=0.9, help="of NNCodec's bytes for ours")
    options = parser.parse_args()
    network = PRETRAINED[options.network]
    print("| qp | NNCodec | accuracy | ours | of it | accuracy | s |")
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    for row in rows(options, network):
        (theirs, known), (size, found) = row["theirs"], row["ours"]
        print(
            f"| {row['setting']} | {theirs:,} | {known:.2f} | {size:,} | {size / theirs:.3f} | "
            f"{found:.2f} | {row['seconds']:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

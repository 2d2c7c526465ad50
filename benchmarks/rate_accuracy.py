"""Networks rounded without training, by `nncfx.storage.compress` and by NNCodec: bytes, accuracy.

For each quantization parameter NNCodec rounds and codes all parameters with its dependent
quantization; ours gets at most `--share` of those bytes. Both are read back, and judged on the
test images, or, for MiniLM, by the mean cosine of sentences' embeddings with those of the dense
model. See `nncodec_files.py` for the environment of NNCodec, `minilm_quantization.py` for MiniLM.

    python benchmarks/rate_accuracy.py --data ../shared/data --nncodec nnc/bin/python
    python benchmarks/rate_accuracy.py ... --network vgg19_bn --examples 2000 --qp -20
    python benchmarks/rate_accuracy.py ... --network minilm --minilm FOLDER --qp -24
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nncodec_files import IMPORTS
from pretrained import PRETRAINED
from torch import nn
from torch.nn import functional as F

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
OPTIONS: dict[str, dict[str, bool]] = {"plain": {}, "opt_qp": {"opt_qp": True}}
CALIBRATION = 512


@dataclass(frozen=True)
class Subject:
    """A network, what it is calibrated on, and its metric in percent."""

    load: Callable[[], nn.Module]
    batches: list[Any]
    metric: Callable[[nn.Module], float]


def images(options: argparse.Namespace) -> Subject:
    """Return a pretrained network of the shared data, judged by its accuracy."""
    network = PRETRAINED[options.network]
    pixels, labels = (one[: options.examples] for one in network.test(options.data))

    @torch.inference_mode()
    def accuracy(model: nn.Module) -> float:
        parts = [model.eval()(part).argmax(1) for part in pixels.split(500)]
        return 100 * float((torch.cat(parts) == labels).double().mean())

    calibration, _ = network.train(options.data, CALIBRATION)
    return Subject(lambda: network.load(options.data), list(calibration.split(128)), accuracy)


def sentences(options: argparse.Namespace) -> Subject:
    """Return MiniLM, judged by the cosine of its embeddings with those of the dense model."""
    import minilm_quantization as minilm  # noqa: PLC0415 (it needs transformers)

    folder = next(options.minilm.rglob("model.safetensors")).parent
    test = minilm.tokens(
        folder, minilm.sentences(options.data, "test", options.examples or 1000), 50
    )
    texts = minilm.sentences(options.data, "valid", CALIBRATION)
    calibration = [{"ids": ids, "mask": mask} for ids, mask in minilm.tokens(folder, texts, 64)]

    @torch.inference_mode()
    def embedded(model: nn.Module) -> torch.Tensor:
        return torch.cat([model(*one) for one in test])

    dense = embedded(minilm.Embedder(folder))

    def cosine(model: nn.Module) -> float:
        return 100 * float(F.cosine_similarity(embedded(model.eval()), dense).double().mean())

    return Subject(lambda: minilm.Embedder(folder), calibration, cosine)


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


def rows(options: argparse.Namespace, subject: Subject) -> Iterator[dict[str, Any]]:
    """Yield a row for each setting of NNCodec."""
    with tempfile.TemporaryDirectory() as folder:
        other = NNCodec(options.nncodec, folder)
        for qp in options.qp:
            for extra in (OPTIONS[name] for name in options.options):
                theirs = subject.load()
                size = other.coded(theirs, qp, extra)
                start = time.process_time()
                budget = Bytes(int(options.share * size))
                found = compress(subject.load(), subject.batches, budget=budget)
                seconds = time.process_time() - start
                path = Path(folder) / "ours.nncfx"
                saved = found.save(path)
                ours = nncfx.storage.load(path, subject.load())
                yield {
                    "setting": f"{qp}{', opt_qp' if extra else ''}",
                    "theirs": (size, subject.metric(theirs)),
                    "ours": (saved.size_bytes, subject.metric(ours)),
                    "seconds": seconds,
                }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nncodec", required=True, help="a Python that has nncodec")
    networks = [*sorted(PRETRAINED), "minilm"]
    parser.add_argument("--network", default="resnet56-A", choices=networks)
    parser.add_argument("--minilm", type=Path, help="where MiniLM's package was put")
    parser.add_argument("--examples", type=int, help="of the test set; else all, or 1,000 texts")
    parser.add_argument("--options", nargs="*", default=[*OPTIONS], choices=[*OPTIONS])
    parser.add_argument("--qp", type=int, nargs="*", default=[-26, -22, -20])
    parser.add_argument("--share", type=float, default=0.9, help="of NNCodec's bytes for ours")
    options = parser.parse_args()
    subject = sentences(options) if options.network == "minilm" else images(options)
    print(f"dense: {subject.metric(subject.load()):.2f}")
    print("| qp | NNCodec | accuracy | ours | of it | accuracy | s |")
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    for row in rows(options, subject):
        (theirs, known), (size, found) = row["theirs"], row["ours"]
        print(
            f"| {row['setting']} | {theirs:,} | {known:.2f} | {size:,} | {size / theirs:.3f} | "
            f"{found:.2f} | {row['seconds']:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

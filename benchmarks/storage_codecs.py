"""Size, speed and memory of the storage codecs on an AlexNet-shaped model.

61 M Laplace weights in the shapes of torchvision's AlexNet, 90 % pruned by magnitude per layer,
clustered to 255 (convolutions) or 31 (fully connected) values: equally spaced from least to
largest, then fifteen steps of k-means. The model is written to FILE once, without torch.

    python benchmarks/storage_codecs.py FILE size
    python benchmarks/storage_codecs.py FILE general
    python benchmarks/storage_codecs.py FILE speed
    python benchmarks/storage_codecs.py FILE memory

`size` compares the container with Deep Compression, `general` is what zip and zstd make of one
byte per weight (minutes, needs `zstandard`), `speed` is by the clock, best of some rounds, and
`memory` is the most that writing and reading allocate.
"""

import argparse
import io
import json
import math
import struct
import tempfile
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from rich.progress import track

from nncfx.storage import TensorFile, deep_compression, pack_safetensors
from nncfx.storage.codecs import ans, huffman
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.codecs.number_formats import BitTensor
from nncfx.storage.formats.container import Contents, pack, read_header, read_tensors

SHAPES = {
    "conv1": (64, 3, 11, 11),
    "conv2": (192, 64, 5, 5),
    "conv3": (384, 192, 3, 3),
    "conv4": (256, 384, 3, 3),
    "conv5": (256, 256, 3, 3),
    "fc6": (4096, 9216),
    "fc7": (4096, 4096),
    "fc8": (1000, 4096),
}
STEPS = 15
"""Steps of k-means: the order-0 entropy is then 5.96 MB, that of the peers' measurement."""

Weights = dict[str, np.ndarray]


def layer(rng: np.random.Generator, shape: tuple[int, ...], levels: int) -> np.ndarray:
    """Return Laplace weights, 90 % zero, the rest clustered to `levels` values."""
    values = rng.laplace(size=math.prod(shape)).astype(np.float32)
    size = np.abs(values)
    values[size < np.partition(size, int(0.9 * size.size))[int(0.9 * size.size)]] = 0.0
    kept = np.sort(values[values != 0])
    sums = np.concatenate([[0.0], np.cumsum(kept, dtype=np.float64)])
    grid = np.linspace(kept[0], kept[-1], levels)
    for _ in range(STEPS):
        ends = np.searchsorted(kept, (grid[1:] + grid[:-1]) / 2)
        ends = np.concatenate([[0], ends, [kept.size]])
        counts = np.diff(ends)
        grid = np.where(counts > 0, np.diff(sums[ends]) / np.maximum(counts, 1), grid)
    nearest = np.searchsorted((grid[1:] + grid[:-1]) / 2, values[values != 0])
    values[values != 0] = grid.astype(np.float32)[nearest]
    return values.reshape(shape)


def write_model(path: Path) -> None:
    """Write the model as a safetensors file."""
    header: dict[str, Any] = {}
    at = 0
    for name, shape in SHAPES.items():
        end = at + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    rng = np.random.default_rng(0)
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in track(SHAPES.items(), "Making the model", transient=True):
            file.write(layer(rng, shape, 255 if "conv" in name else 31).tobytes())
    temporary.replace(path)


def read_model(path: Path) -> Weights:
    """Return the weights of `write_model`."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    at = 8 + int(data[:8].view("<u8")[0])
    found = {}
    for name, shape in SHAPES.items():
        found[name] = np.array(data[at : at + 4 * math.prod(shape)].view("<f4")).reshape(shape)
        at += found[name].nbytes
    return found


def as_bits(weights: Weights) -> dict[str, BitTensor]:
    """Return `weights` as the container takes them."""
    return {
        name: BitTensor(dtype="F32", shape=w.shape, words=w.reshape(-1).view("<u4"))
        for name, w in weights.items()
    }


def coded(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return one byte per weight, 0 for zero, and the values that the others stand for."""
    values = np.unique(w[w != 0])
    codes = np.zeros(w.size, np.uint8)
    codes[w.reshape(-1) != 0] = 1 + np.searchsorted(values, w[w != 0])
    return codes, values


def entropy_bytes(counts: np.ndarray) -> float:
    """Return the order-0 entropy of symbols that occur `counts` times, in bytes."""
    counts = counts[counts > 0]
    return float(-(counts * np.log2(counts / counts.sum())).sum() / 8)


def row(name: str, size: float, dense: int, bound: float) -> None:
    """Print one line of the table."""
    print(f"| {name} | {size / 1e6:.3f} | {dense / size:.1f}x | {size / bound:.4f} |", flush=True)


def deep_compression_bytes(weights: Weights) -> tuple[float, float, float]:
    """Return the size of Deep Compression's form: plain, with Huffman's code, with its bound.

    Codes of 5 and 8 bits, gaps of 4 bits, biases and codebooks; no tables of Huffman's codes.
    """
    plain = huffman_bytes = bound = 0.0
    for name, w in weights.items():
        values = coded(w)[1]
        book = np.concatenate([[0.0], values, np.zeros(255)])[:256].astype(np.float32)
        one = deep_compression.Layer(w, np.zeros(w.shape[0], np.float32), book)
        layers = [(name, w.shape, 8)]
        entries = deep_compression.decode(deep_compression.encode({name: one}, layers), layers)[
            name
        ].entries
        assert entries is not None  # noqa: S101 (decoded layers have them)
        bits = 8 if "conv" in name else 5
        rest = 4 * w.shape[0] + 4 * 2**bits
        plain += rest + entries.codes.size * (bits + 4) / 8
        streams = [huffman.count_symbols(one) for one in (entries.codes, entries.gaps)]
        huffman_bytes += rest + sum(
            (counts * huffman.code_lengths(counts)).sum() / 8 for counts in streams
        )
        bound += rest + sum(map(entropy_bytes, streams))
    return plain, huffman_bytes, bound


def report_size(weights: Weights) -> None:
    """Print the sizes of the container and of Deep Compression's form."""
    dense = sum(w.nbytes for w in weights.values())
    bound = sum(entropy_bytes(np.bincount(coded(w)[0])) for w in weights.values())
    print("| | MB | smaller | of the bound |\n|---|---:|---:|---:|")
    row("float32", dense, dense, bound)
    row("order-0 entropy of each layer (bound)", bound, dense, bound)
    file = pack(Contents(tensors=as_bits(weights)))
    row("`.nncfx`, whole file", len(file), dense, bound)
    with mock.patch.object(ans, "estimated_size", return_value=math.inf):
        row("`.nncfx`, Huffman only", len(pack(Contents(tensors=as_bits(weights)))), dense, bound)
    plain, coded_, ideal = deep_compression_bytes(weights)
    row("Deep Compression, no Huffman", plain, dense, bound)
    row("Deep Compression, Huffman on both streams, tables left out", coded_, dense, bound)
    row("Deep Compression, entropy of both streams", ideal, dense, bound)
    for stored in read_header(io.BytesIO(file)).rows:
        per_weight = 8 * stored.size_bytes / stored.count
        print(f"{stored.name}: {stored.codec}, {per_weight:.4f} bits per weight")


def report_general(weights: Weights) -> None:
    """Print what general compressors make of one byte per weight."""
    import zstandard  # noqa: PLC0415 (only here)

    parts = [coded(w) for w in weights.values()]
    data = b"".join(codes.tobytes() for codes, _ in parts)
    rest = sum(4 * values.size for _, values in parts)
    dense = sum(w.nbytes for w in weights.values())
    bound = sum(entropy_bytes(np.bincount(codes)) for codes, _ in parts)
    print("| | MB | smaller | of the bound |\n|---|---:|---:|---:|")
    row("zstd -19 of one byte per weight", rest + len(zstandard.compress(data, 19)), dense, bound)
    row("zip -9 of one byte per weight", rest + len(zlib.compress(data, 9)), dense, bound)


def read_all(data: bytes) -> None:
    """Read all tensors of a container, keeping none."""
    file = io.BytesIO(data)
    for _, bits in read_tensors(file, read_header(file)):
        del bits  # or the next one would be read beside it


def best_of(rounds: int, *works: Callable[[], Any]) -> list[float]:
    """Return the least seconds of each of `works`, which take turns."""
    found = [math.inf] * len(works)
    for _ in range(rounds):
        for number, work in enumerate(works):
            start = time.perf_counter()
            work()
            found[number] = min(found[number], time.perf_counter() - start)
    return found


def report_speed(weights: Weights) -> None:
    """Print how many weights, and symbols of both coders, are written and read per second."""
    tensors = as_bits(weights)
    data = pack(Contents(tensors=tensors))
    count = sum(w.size for w in weights.values()) / 1e6
    writing, reading = best_of(3, lambda: pack(Contents(tensors=tensors)), lambda: read_all(data))
    print(f".nncfx: writes {count / writing:.1f}, reads {count / reading:.1f} M weights/s")
    symbols = np.minimum(np.random.default_rng(0).geometric(0.1, 6_000_000) - 1, 255)
    symbols = symbols.astype(np.uint16)
    counts = huffman.count_symbols(symbols)
    by_huffman, by_ans = huffman.encode(symbols), ans.encode(symbols, counts)
    seconds = best_of(
        3,
        lambda: huffman.encode(symbols),
        lambda: huffman.decode(ByteReader(by_huffman), symbols.size),
        lambda: ans.encode(symbols, counts),
        lambda: ans.AnsReader(ByteReader(by_ans), symbols.size).read(symbols.size),
    )
    speeds = [6 / one for one in seconds]
    for name, at, coded_ in (("Huffman", 0, by_huffman), ("ANS", 2, by_ans)):
        share = len(coded_) / entropy_bytes(counts)
        print(
            f"{name}, 6 M gaps: {share:.4f} of the entropy, encodes {speeds[at]:.0f}, "
            f"decodes {speeds[at + 1]:.0f} M symbols/s"
        )


def peak_bytes(work: Callable[[], Any]) -> int:
    """Return the most bytes that `work` allocates."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def report_memory(model: Path) -> None:
    """Print the most memory that files to and from the container take, one tensor at a time."""
    largest = max(4 * math.prod(shape) for shape in SHAPES.values())
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.nncfx"
        writing = peak_bytes(lambda: pack_safetensors(model, target))
        size = target.stat().st_size

        def read() -> None:
            with TensorFile(target) as file:
                for _, bits in file.stream():
                    del bits

        reading = peak_bytes(read)
    print(f"largest tensor {largest / 1e6:.1f} MB, file {size / 1e6:.2f} MB")
    for name, peak in (("write", writing), ("read", reading)):
        print(f"{name}: {peak / 1e6:.1f} MB, {peak / (largest + size):.3f} of both")


def main() -> None:
    """Print one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a safetensors file, made when it is not there")
    parser.add_argument("part", choices=("size", "general", "speed", "memory"))
    options = parser.parse_args()
    if not options.model.exists():
        write_model(options.model)
    if options.part == "memory":
        report_memory(options.model)
        return
    reports = {"size": report_size, "general": report_general, "speed": report_speed}
    reports[options.part](read_model(options.model))


if __name__ == "__main__":
    main()

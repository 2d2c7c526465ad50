"""Size and speed of the storage codecs on an AlexNet-shaped model.

61 M Laplace weights, 90 % pruned by magnitude per layer, clustered to 255 (convolutions) or 31
(fully connected) equally spaced values; `--scale` shrinks the fully connected layers.

Speeds are by CPU time of one thread, so that other work on the machine does not count.

    python benchmarks/storage_codecs.py [--scale 0.1]
"""

import argparse
import io
import math
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from nncfx.storage import ans, deep_compression, huffman
from nncfx.storage.byte_reader import ByteReader
from nncfx.storage.container import Contents, pack, read_header, read_tensors
from nncfx.storage.number_formats import BitTensor

SHAPES = {
    "conv1": (96, 3, 11, 11),
    "conv2": (256, 48, 5, 5),
    "conv3": (384, 256, 3, 3),
    "conv4": (384, 192, 3, 3),
    "conv5": (256, 192, 3, 3),
    "fc6": (4096, 9216),
    "fc7": (4096, 4096),
    "fc8": (1000, 4096),
}


def layer(rng: np.random.Generator, shape: tuple[int, ...], levels: int) -> np.ndarray:
    """Return Laplace weights, 90 % zero, the rest on `levels` equally spaced values."""
    values = rng.laplace(size=math.prod(shape)).astype(np.float32)
    values[np.abs(values) < np.quantile(np.abs(values), 0.9)] = 0.0
    kept = values != 0
    grid = np.linspace(values.min(), values.max(), levels, dtype=np.float32)
    grid[grid == 0] = 1e-3
    nearest = np.searchsorted((grid[1:] + grid[:-1]) / 2, values[kept])
    values[kept] = grid[nearest]
    return values.reshape(shape)


def entropy_bytes(values: np.ndarray) -> float:
    """Return the order-0 entropy of all values, zeros included, in bytes."""
    _, counts = np.unique(values, return_counts=True)
    return float(-(counts * np.log2(counts / values.size)).sum() / 8)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what `work` returns, and its CPU seconds."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def unpack(data: bytes) -> dict[str, BitTensor]:
    """Return all tensors of a container."""
    file = io.BytesIO(data)
    return {row.name: bits for row, bits in read_tensors(file, read_header(file))}


def read_one_by_one(data: bytes) -> None:
    """Read all tensors of a container, keeping none."""
    file = io.BytesIO(data)
    for _, bits in read_tensors(file, read_header(file)):
        del bits  # or the next one would be read beside it


def peak_mb(work: Callable[[], Any]) -> float:
    """Return the most memory in MB that `work` allocates."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def row(name: str, size: float, dense: int, note: str) -> None:
    """Print one line of the table."""
    print(f"{name:<46} {size / 1e6:8.3f} MB {dense / size:7.2f}x  {note}")


def report_container(weights: dict[str, np.ndarray], bound: float) -> None:
    """Write and read a container of `weights` and print its size, speed and memory."""
    count = sum(w.size for w in weights.values())
    bits = {
        name: BitTensor(dtype="F32", shape=w.shape, words=w.reshape(-1).view("<u4"))
        for name, w in weights.items()
    }
    data, packing = timed(lambda: pack(Contents(tensors=bits)))
    again, unpacking = timed(lambda: unpack(data))
    for name, tensor in bits.items():
        np.testing.assert_array_equal(again[name].words, tensor.words)
    speed = f"{count / packing / 1e6:.1f} / {count / unpacking / 1e6:.1f} M weights/s"
    note = f"{len(data) / bound:.4f} of the bound, write / read {speed}"
    row(".nncfx", len(data), 4 * count, note)
    largest = max(w.nbytes for w in weights.values())
    print(f"  peak memory beside the tensors, largest {largest / 1e6:.0f} MB:")
    print(f"  write {peak_mb(lambda: pack(Contents(tensors=bits))):.0f} MB")
    print(f"  read {peak_mb(lambda: read_one_by_one(data)):.0f} MB, one tensor at a time")
    for stored in read_header(io.BytesIO(data)).rows:
        per_weight = 8 * stored.size_bytes / stored.count
        print(f"  {stored.name:<8} {stored.codec:<16} {per_weight:.4f} bits/weight")


def report_deep_compression(weights: dict[str, np.ndarray]) -> None:
    """Write and read a `.net` file of `weights` and print its size and speed."""
    count = sum(w.size for w in weights.values())
    # 31 values do not fit the layout's 4-bit codes, so all layers take its 8-bit ones.
    layers = [(name, w.shape, 8) for name, w in weights.items()]
    decoded = {}
    for name, w in weights.items():
        book = np.zeros(256, dtype=np.float32)
        used = np.unique(w[w != 0])
        book[1 : used.size + 1] = used
        decoded[name] = deep_compression.Layer(w, np.zeros(w.shape[0], np.float32), book)
    net, packing = timed(lambda: deep_compression.encode(decoded, layers))
    _, unpacking = timed(lambda: deep_compression.decode(net, layers))
    coded = sum(
        huffman.encoded_size(huffman.count_symbols(stream))
        for layer in deep_compression.decode(net, layers).values()
        if layer.entries
        for stream in (layer.entries.codes, layer.entries.gaps)
    )
    row(
        "Deep Compression, Huffman on both streams", coded, 4 * count, "codebooks, biases left out"
    )
    speed = f"{count / packing / 1e6:.1f} / {count / unpacking / 1e6:.1f} M weights/s"
    row("Deep Compression .net, 8-bit codes", len(net), 4 * count, f"write / read {speed}")


def report_coders(rng: np.random.Generator) -> None:
    """Print size and speed of both entropy coders on gaps of a 90 %-sparse tensor."""
    symbols = np.minimum(rng.geometric(0.1, 6_000_000) - 1, 255).astype(np.uint16)
    counts = huffman.count_symbols(symbols)
    shares = counts[counts > 0] / symbols.size
    bound = float(-(shares * np.log2(shares)).sum()) * symbols.size / 8
    coders = {
        "Huffman": (huffman.encode, lambda data: huffman.decode(ByteReader(data), symbols.size)),
        "ANS": (
            lambda drawn: ans.encode(drawn, counts),
            lambda data: ans.AnsReader(ByteReader(data), symbols.size).read(symbols.size),
        ),
    }
    for name, (encode, decode) in coders.items():
        coded, coding = timed(lambda encode=encode: encode(symbols))
        again, decoding = timed(lambda decode=decode, coded=coded: decode(coded))
        np.testing.assert_array_equal(again, symbols)
        speed = f"encode {6 / coding:.0f}, decode {6 / decoding:.0f} M symbols/s"
        print(f"{name}, 6 M gaps: {len(coded) / bound:.4f} of the entropy, {speed}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    scale = parser.parse_args().scale
    rng = np.random.default_rng(0)
    weights = {}
    for name, shape in SHAPES.items():
        thin = (max(1, round(shape[0] * scale)), *shape[1:]) if "fc" in name else shape
        weights[name] = layer(rng, thin, 255 if "conv" in name else 31)
    count = sum(w.size for w in weights.values())
    bound = sum(entropy_bytes(w) for w in weights.values())
    print(f"{count / 1e6:.2f} M weights")
    row("float32", 4 * count, 4 * count, "")
    row("order-0 entropy per layer (bound)", bound, 4 * count, "")
    report_container(weights, bound)
    report_deep_compression(weights)
    report_coders(rng)


if __name__ == "__main__":
    main()

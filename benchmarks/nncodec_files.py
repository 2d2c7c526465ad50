"""`.nncfx` against the reference software of ISO/IEC 15938-17, NNCodec: the same integers.

Weights of the pretrained networks in DATA/weights are rounded to uniform grids of 8, 5 and 4 bits
per tensor, with 0, 80 and 90 % of each tensor pruned by magnitude. Whole files, and CPU time, or
with `--wall` time by the clock, in which ours reads with two threads; what each reader gives is
compared with the integers.

    python -m venv nnc; nnc/bin/pip install 'numpy<2' pybind11 setuptools wheel
    nnc/bin/pip install --no-build-isolation --no-deps nncodec==2.1.3
    python benchmarks/nncodec_files.py --data ../shared/data --nncodec nnc/bin/python

NNCodec runs in an interpreter of its own, which needs `torch` for its imports. Both code each file
in turns, five times, or once where there are millions of weights; the fastest counts.
"""

import argparse
import io
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

from nncfx.storage.codecs.number_formats import BitTensor
from nncfx.storage.compiled import prepare
from nncfx.storage.formats.container import Contents, pack, read_header, read_tensors

BITS = (8, 5, 4)
ZEROS = (0, 80, 90)
ROUNDS = 5
MANY = 2_000_000
IMPORTS = """
import json, sys, time, types
names = ("tensorflow_model", "pytorch_model", "use_case_init")
frame = types.ModuleType("nncodec.framework")  # models and data sets, which coding does not need
for name in names:
    part = types.ModuleType("nncodec.framework." + name)
    setattr(frame, name, part)
    sys.modules[part.__name__] = part
sys.modules[frame.__name__] = frame
import numpy as np
from nncodec import nnc
"""
THEIRS = (
    IMPORTS
    + """
clock = getattr(time, sys.argv[1])
for line in sys.stdin:
    path = line.strip()
    if path:
        with np.load(path) as file:
            tensors = {name: np.int32(file[name]) for name in file.files}
    start = clock()
    data = nnc.compress(tensors, bitstream_path=None, return_bitstream=True, use_dq=False,
                        row_skipping=True)
    written = clock()
    found = nnc.decompress(data)
    read = clock()
    same = all(np.array_equal(found[name], one) for name, one in tensors.items())
    print(json.dumps([len(data), written - start, read - written, same]), flush=True)
"""
)

Integers = dict[str, np.ndarray]


def integers(path: Path, bits: int, zeros: int) -> Integers:
    """Return the weights of a file, `zeros` % of each tensor pruned, on uniform grids."""
    found = {}
    for name, values in load_file(path).items():
        if values.ndim > 1:
            weight = values.astype(np.float32)
            size = np.abs(weight)
            place = int(zeros / 100 * size.size)
            weight[size < np.partition(size.reshape(-1), place)[place]] = 0
            scale = np.abs(weight).max() / (2 ** (bits - 1) - 1)
            found[name] = np.rint(weight / scale).astype(np.int8)
    return found


def entropy_bytes(values: np.ndarray) -> float:
    """Return the order-0 entropy of a tensor."""
    counts = np.unique(values, return_counts=True)[1]
    return float((counts * np.log2(values.size / counts)).sum()) / 8


class Coded(NamedTuple):
    """A whole file: its bytes, and the CPU seconds to write and to read it."""

    size: int
    writing: float
    reading: float

    def faster(self, other: "Coded") -> "Coded":
        """Return the lesser times of two codings of one file."""
        times = min(self.writing, other.writing), min(self.reading, other.reading)
        return Coded(self.size, *times)


def ours(tensors: Integers, mode: Any, clock: str = "process_time") -> Coded:  # noqa: ANN401 (a literal)
    """Write and read our file by a clock of `time`, and compare what is read."""
    now = getattr(time, clock)
    words = {
        name: BitTensor(dtype="I8", shape=one.shape, words=one.reshape(-1).view("u1"))
        for name, one in tensors.items()
    }
    start = now()
    data = pack(Contents(tensors=words), mode)
    written = now()
    file = io.BytesIO(data)
    found = {row.name: one for row, one in read_tensors(file, read_header(file))}
    read = now()
    same = all(np.array_equal(found[name].words, one.words) for name, one in words.items())
    assert same  # noqa: S101 (what is claimed)
    return Coded(len(data), written - start, read - written)


def measured(data: Path, python: str, names: list[str], clock: str) -> Iterator[dict[str, Any]]:
    """Yield a row for every file."""
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(  # noqa: S603 (the interpreter that was asked for)
            [python, "-c", THEIRS, clock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as other,
    ):
        theirs = _Theirs(other)
        for path in sorted((data / "weights").glob("*.safetensors")):
            if names and not any(name in path.stem for name in names):
                continue
            for bits in BITS:
                for zeros in ZEROS:
                    tensors = integers(path, bits, zeros)
                    np.savez(Path(folder) / "it.npz", **tensors)
                    count = sum(one.size for one in tensors.values())
                    found = {"nncodec": theirs(Path(folder) / "it.npz")}
                    for k in range(ROUNDS if count < MANY else 1):
                        rounds = {mode: ours(tensors, mode, clock) for mode in ("small", "fast")}
                        if k:
                            rounds["nncodec"] = theirs(None)
                        for name, one in rounds.items():
                            found[name] = found[name].faster(one) if name in found else one
                    yield {
                        "file": f"{path.stem}, {bits} bits, {zeros} %",
                        "count": count,
                        "entropy": sum(map(entropy_bytes, tensors.values())),
                        **found,
                    }


class _Theirs:
    """NNCodec in an interpreter of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def __call__(self, path: Path | None) -> Coded:
        """Write and read the integers of `path`, or those of before."""
        assert self._process.stdin  # noqa: S101 (piped)
        assert self._process.stdout  # noqa: S101 (piped)
        print(path or "", file=self._process.stdin, flush=True)
        *found, same = json.loads(self._process.stdout.readline())
        assert same  # noqa: S101 (what is claimed)
        return Coded(*found)


def main() -> None:
    """Print the table and the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nncodec", required=True, help="a Python that has nncodec")
    parser.add_argument("--networks", nargs="*", default=[], help="parts of names; else all")
    parser.add_argument("--wall", action="store_true", help="time by the clock, not of the CPU")
    options = parser.parse_args()
    clock = "perf_counter" if options.wall else "process_time"
    prepare(1 << 20)  # as where a large file was coded before
    warm = np.arange(-40, 41, dtype=np.int8).reshape(9, 9)
    ours({"warm": warm}, "small")  # numba compiles
    print(
        "| file | NNCodec | entropy | `small` | of it | `fast` | M/s decoded: NNCodec | `small` "
        "| `fast` |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    rows = []
    for row in measured(options.data, options.nncodec, options.networks, clock):
        rows.append(row)
        speeds = [row["count"] / row[one].reading / 1e6 for one in ("nncodec", "small", "fast")]
        theirs, small = row["nncodec"].size, row["small"].size
        print(
            f"| {row['file']} | {theirs:,} | {row['entropy']:,.0f} | {small:,} | "
            f"{small / theirs:.3f} | {row['fast'].size:,} | "
            + " | ".join(f"{speed:.1f}" for speed in speeds)
            + " |",
            flush=True,
        )
    for mode in ("small", "fast"):
        sizes = np.array([row[mode].size / row["nncodec"].size for row in rows])
        writing, reading = (
            np.array([row["nncodec"][k] / row[mode][k] for row in rows]) for k in (1, 2)
        )
        print(
            f"{mode}: {len(rows)} files, {sizes.mean():.3f} of NNCodec's bytes (worst "
            f"{sizes.max():.3f}); {clock}, median (mean, least): "
            f"encodes at {np.median(writing):.2f} ({writing.mean():.2f}, {writing.min():.2f}) of "
            f"its speed, decodes at {np.median(reading):.2f} ({reading.mean():.2f}, "
            f"{reading.min():.2f})"
        )


if __name__ == "__main__":
    main()

"""Feed the readers of files with hostile bytes: nothing but our own errors may come out.

The first byte of an input chooses a reader, the second its parameters, the rest is what it reads.
Every 64th execution also measures the memory that was allocated against the documented bound.

    python benchmarks/fuzz_storage.py --seconds 60
    python benchmarks/fuzz_storage.py --seconds 1800 --engine atheris --corpus FOLDER

`mutations` changes known inputs at random; `atheris` is guided by coverage (`pip install
atheris`). Inputs that atheris finds worth keeping are left in the corpus folder. Seconds are
those of the processor, so that other work on the machine does not count.
"""

import argparse
import contextlib
import gc
import io
import os
import random
import struct
import sys
import tempfile
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType

import numpy as np

from nncfx.errors import RuntimeFailure, StorageError
from nncfx.runtimes.protocol.engine_cache import kept_engine
from nncfx.storage import TensorFile, deep_compression, pack_safetensors, unpack_safetensors
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.codecs.number_formats import WIDTHS, BitTensor
from nncfx.storage.codecs.symbol_stream import encode_symbols, open_symbols
from nncfx.storage.codecs.tensor_codecs import CODECS, encode_words
from nncfx.storage.context_coding.values import CONTEXT_CODECS
from nncfx.storage.formats.container import Contents, pack, read_header, read_tensors
from nncfx.storage.formats.segments import TensorRow, read_segment, segments_of

CORPUS = Path(__file__).parent.parent / "tests" / "storage" / "corpus"
PREFIX = struct.Struct("<8sIIII")
COUNTS = (0, 1, 2, 7, 16, 300, 5000, 70_000)
FORMATS = (("F32", "F32"), ("F32", "F16"), ("F64", "BF16"), ("U8", "U8"), ("I64", "I32"))
STREAM_FORMATS = (("I8", "I8"), ("F32", "F32"), ("F32", "BF16"), ("U8", "U8"), ("I64", "I32"))
SHAPES = ((), (0, 3), (7,), (5, 6), (6, 3, 3, 3), (40, 30), (1, 70_000), (1, 1 << 18, 1))
SHARED = Path("/dev/shm")  # noqa: S108 (folders made in it are private)
MEMORY = SHARED if SHARED.is_dir() else None  # a file there costs no disk
LAYERS = [("conv", (3, 2, 2, 2), 8), ("fc", (5, 9), 4)]


def whole_file(_: int, data: bytes) -> None:
    """Read `data` as a container."""
    file = io.BytesIO(data)
    for _ in read_tensors(file, read_header(file), max_bytes=1 << 22):
        pass


def with_checksums(version: int, data: bytes) -> None:
    """Read a container whose header has `data`, up to a zero byte, and then the rest of it."""
    text, _, payload = data.partition(b"\0")
    packed = zlib.compress(text)
    crc = zlib.crc32(packed)
    prefix = PREFIX.pack(b"\x89NNCFX\r\n", version % 4, len(packed), len(text), crc)
    whole_file(0, prefix + packed + payload)


def tensor(choice: int, data: bytes) -> None:
    """Read `data` as a tensor of a codec, count and formats."""
    dtype, stored = FORMATS[choice % len(FORMATS)]
    codec = CODECS[choice % len(CODECS)]
    count = COUNTS[choice % len(COUNTS)]
    row = TensorRow(
        name="w", dtype=dtype, stored=stored, shape=(count,), codec=codec, size_bytes=len(data)
    )
    ((_, found),) = read_segment(data, [row])
    assert found.words.size == count  # noqa: S101 (what is promised)


def stream(choice: int, data: bytes) -> None:
    """Read `data` as tensors that share a context-coded stream."""
    rows = stream_rows(choice, len(data))
    for row, found in read_segment(data, rows):
        assert found.words.size == row.count  # noqa: S101 (what is promised)


def stream_rows(choice: int, size: int) -> list[TensorRow]:
    """Return the rows of a stream of `size` bytes: one tensor, or two that share it equally."""
    dtype, stored = STREAM_FORMATS[choice % len(STREAM_FORMATS)]
    codec = CONTEXT_CODECS[choice // 2 % len(CONTEXT_CODECS)]
    shape = SHAPES[choice // 8 % len(SHAPES)]
    parts = [size] if choice % 2 else [size // 2, size - size // 2]
    return [
        TensorRow(
            name=f"{part}", dtype=dtype, stored=stored, shape=shape, codec=codec, size_bytes=bytes_
        )
        for part, bytes_ in enumerate(parts)
    ]


def symbols(choice: int, data: bytes) -> None:
    """Read `data` as a symbol stream."""
    count = COUNTS[choice % len(COUNTS)]
    assert open_symbols(ByteReader(data), count).read(count).size == count  # noqa: S101 (what is promised)


@contextlib.contextmanager
def as_file(data: bytes) -> Iterator[Path]:
    """Give `data` as a file in a folder of its own."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "input"
        path.write_bytes(data)
        yield path


def one_by_one(_: int, data: bytes) -> None:
    """Read `data` as a mapped container, one tensor at a time."""
    with as_file(data) as path, TensorFile(path, max_bytes=1 << 22) as file:
        for name in file.names:
            file.read(name)


def safetensors(_: int, data: bytes) -> None:
    """Pack `data` as a safetensors file; what can be packed must come back."""
    with as_file(data) as path:
        packed, again = path.with_name("packed"), path.with_name("again")
        pack_safetensors(path, packed)
        unpack_safetensors(packed, again)


def net(_: int, data: bytes) -> None:
    """Read `data` as a `.net` file, which must give the same bytes again."""
    layers = deep_compression.decode(data, LAYERS)
    assert deep_compression.encode(layers, LAYERS) == data  # noqa: S101 (what is promised)


def engine(_: int, data: bytes) -> None:
    """Find `data` where an engine was kept; only the engine that was built may come back."""
    facts, built = {"runtime": "r", "model": "m"}, b"built"
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        kept_engine(folder, facts, lambda: built)
        (path,) = folder.iterdir()
        path.write_bytes(data)
        assert kept_engine(folder, facts, lambda: built)[0] == built  # noqa: S101 (see above)


READERS: tuple[Callable[[int, bytes], None], ...] = (
    whole_file,
    with_checksums,
    tensor,
    symbols,
    net,
    one_by_one,
    safetensors,
    stream,
    engine,
)
ROUND = 250_000
MOST_MEMORY = 96 << 20
"""Bytes: what the documented bounds add up to for the largest of the inputs above."""


def run(data: bytes) -> None:
    """Give `data` to the reader it chooses; any error but these is a find."""
    if len(data) >= 2:  # noqa: PLR2004 (reader and parameters)
        with contextlib.suppress(StorageError, RuntimeFailure):
            READERS[data[0] % len(READERS)](data[1], data[2:])


def run_measured(data: bytes) -> None:
    """Run, and check the memory that it took."""
    tracemalloc.start()
    try:
        run(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > MOST_MEMORY:
        raise MemoryError(f"{peak} bytes for {data!r}")


def known_inputs() -> list[bytes]:
    """Return valid inputs of every reader, to start from."""
    rng = np.random.default_rng(0)
    found = []
    for index, count in enumerate(COUNTS):
        drawn = np.minimum(rng.geometric(0.3, count), 60).astype(np.uint16)
        stream = encode_symbols(drawn)
        found += [bytes([3, index]) + stream]
        sparse = np.where(rng.integers(0, 5, count) == 0, drawn, 0)
        for choice in range(index, 256, len(COUNTS)):
            stored = FORMATS[choice % len(FORMATS)][1]
            codec, payload = encode_words(sparse.astype(f"<u{WIDTHS[stored]}"))
            if codec == CODECS[choice % len(CODECS)]:
                found.append(bytes([2, choice]) + payload)
    found += known_streams(rng)
    words = BitTensor(dtype="F32", shape=(8,), words=np.arange(8, dtype="<u4"))
    file = pack(Contents(tensors={"a": words}, same={"b": "a"}, metadata={"x": 1}))
    _, _, stored, _, _ = PREFIX.unpack(file[: PREFIX.size])
    text = zlib.decompress(file[PREFIX.size : PREFIX.size + stored])
    found += [
        b"\0\0" + file,
        b"\5\0" + file,
        b"\1\2" + text + b"\0" + file[PREFIX.size + stored :],
    ]
    layers = {
        name: deep_compression.Layer(
            np.zeros(shape, np.float32), np.zeros(shape[0], np.float32), np.zeros(2**b, np.float32)
        )
        for name, shape, b in LAYERS
    }
    with as_file(file) as path:
        plain = path.with_name("plain")
        unpack_safetensors(path, plain)
        found.append(b"\6\0" + plain.read_bytes())
        engine_folder = path.with_name("engines")
        kept_engine(engine_folder, {"runtime": "r", "model": "m"}, lambda: b"built")
        found.append(b"\x08\0" + next(engine_folder.iterdir()).read_bytes())
    found.append(b"\4\0" + deep_compression.encode(layers, LAYERS))
    return found


def known_streams(rng: np.random.Generator) -> Iterator[bytes]:
    """Yield valid streams of every meaning."""
    for choice in range(1, 256, 2):
        (row,) = stream_rows(choice, 0)
        spread = (0.5, 3, 40)[choice % 3]
        numbers = np.rint(rng.laplace(0, spread, row.shape)).clip(-99, 99)
        if row.dtype == "F32":
            numbers = numbers * 0.25 if row.codec.endswith("grid") else np.exp(numbers / 9)
        kind = {"I8": "i1", "U8": "u1", "F32": "<f4", "I64": "<i8"}[row.dtype]
        words = np.ascontiguousarray(numbers.astype(kind)).reshape(-1)
        tensor = BitTensor(
            dtype=row.dtype, shape=row.shape, words=words.view(f"<u{words.itemsize}")
        )
        for segment in segments_of({"0": tensor}, "small"):
            if (segment.rows[0].codec, segment.rows[0].stored) == (row.codec, row.stored):
                yield bytes([7, choice]) + segment.data


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return `data` with some bytes changed, cut, repeated or put in."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(5)
        if kind == 0 and out:
            out[at % len(out)] ^= 1 << rng.randrange(8)
        elif kind == 1 and out:
            out[at % len(out)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:  # noqa: PLR2004 (a kind)
            del out[at : at + rng.randrange(1, 9)]
        elif kind == 3:  # noqa: PLR2004 (a kind)
            out[at:at] = out[at : at + rng.randrange(1, 17)]
        else:
            out[at:at] = rng.randbytes(rng.randrange(1, 9))
    return bytes(out[:4096])


def mutate(seconds: float, seed: int) -> int:
    """Run mutations of the corpus and the known inputs; return how many."""
    rng = random.Random(seed)
    pool = known_inputs() + [one.read_bytes() for one in sorted(CORPUS.glob("*"))]
    # large ones are slow and seldom tell more
    pool = [data for data in pool if len(data) < 6000]  # noqa: PLR2004 (see above)
    end = time.process_time() + seconds
    done = 0
    while time.process_time() < end:
        for _ in range(63):
            run_or_tell(run, mutated(rng, rng.choice(pool)))
        run_or_tell(run_measured, mutated(rng, rng.choice(pool)))
        done += 64
        if sys.stderr.isatty() and done % 6400 == 0:
            print(f"\r{done:,} executions", end="", file=sys.stderr)
    return done


def run_or_tell(work: Callable[[bytes], None], data: bytes) -> None:
    """Run; on a find, write the input before the error goes on."""
    try:
        work(data)
    except BaseException:
        print(f"found by {data.hex()}", file=sys.stderr)
        raise


def guided(seconds: float, seed: int, corpus: Path) -> int:
    """Let atheris search inputs, in rounds; return how many were tried.

    Every round is a process of its own, since atheris keeps some bytes of every execution.
    """
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(known_inputs()):
        (corpus / f"known{number}").write_bytes(data)
    spent, done = 0.0, 0
    while spent < seconds:
        child = os.fork()
        if not child:
            fuzz_round(seed, corpus)
        _, status, used = os.wait4(child, 0)
        if status:
            sys.exit(f"found something in the round of seed {seed}")
        seed += 1
        done += ROUND
        spent += used.ru_utime + used.ru_stime
        print(f"{done:,} executions, {spent:,.0f} CPU seconds", flush=True)
    return done


def fuzz_round(seed: int, corpus: Path) -> None:
    """Let atheris try `ROUND` inputs; it ends the process."""
    import atheris  # noqa: PLC0415 (an optional tool)

    for one in gc.get_objects():
        file = one.__code__.co_filename if isinstance(one, FunctionType) else ""
        if "nncfx/storage" in file and "kernel" not in file:  # numba compiles those
            atheris.instrument_func(one)
    options = [f"-seed={seed}", f"-runs={ROUND}", "-max_len=6000", "-timeout=600"]
    atheris.Setup([sys.argv[0], str(corpus), *options], run)
    atheris.Fuzz()


def main() -> None:
    """Fuzz for a while."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="of the processor")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("mutations", "atheris"), default="mutations")
    parser.add_argument("--corpus", type=Path, default=Path("fuzz-corpus"))
    options = parser.parse_args()
    if options.engine == "atheris":
        done = guided(options.seconds, options.seed, options.corpus)
    else:
        done = mutate(options.seconds, options.seed)
    print(f"{done:,} executions, nothing found")


if __name__ == "__main__":
    main()

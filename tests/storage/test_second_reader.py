"""The page suffices: a reader written from docs/format.md alone, in plain Python, reads our files.

It shares no line with nncfx.storage and knows neither numpy nor torch. Names and order follow the
page, so that a difference shows which of the two is at fault.
"""

import io
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bit_tensors import bits_of
from nncfx.storage.codecs.number_formats import BitTensor
from nncfx.storage.formats.container import Contents, pack

WIDTHS = {"8": 1, "8_E4M3": 1, "8_E5M2": 1, "16": 2, "32": 4, "64": 8}


class Bytes(io.BytesIO):
    """Bytes with the page's varint."""

    def varint(self) -> int:
        value = shift = 0
        while (byte := self.read(1)[0]) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift


class Bits:
    """The bits of bytes, highest first."""

    def __init__(self, source: Bytes) -> None:
        self.source, self.kept = source, ""

    def take(self, count: int) -> int:
        while len(self.kept) < count:
            self.kept += f"{self.source.read(1)[0]:08b}"
        taken, self.kept = self.kept[:count], self.kept[count:]
        return int(taken or "0", 2)

    def end(self) -> None:
        assert "1" not in self.kept, "padding"
        self.kept = ""


def lengths(source: Bytes) -> list[int]:
    size, bits, last, out = source.varint(), Bits(source), 5, []
    while len(out) < size:
        if bits.take(1):
            if bits.take(1) == 0:
                last += -1 if bits.take(1) else 1
            elif bits.take(1):
                last = bits.take(4) + 1
            else:  # Elias gamma: as many zeros as bits follow the first one
                zeros = 0
                while not bits.take(1):
                    zeros += 1
                out += [0] * (1 << zeros | bits.take(zeros))
                continue
        out.append(last)
    bits.end()
    return out


def huffman(source: Bytes, count: int) -> list[int]:
    table = lengths(source)
    total = source.varint()
    order = sorted((length, symbol) for symbol, length in enumerate(table) if length)
    if len(order) == 1:
        return [order[0][1]] * count
    if count > 262144:
        source.read(2 * (count // 2048))
    words, word, before = {}, 0, order[0][0]
    for length, symbol in order:
        word <<= length - before
        words[length, word] = symbol
        word, before = word + 1, length
    bits, out, length, code = Bits(source), [], 0, 0
    for _ in range(total):
        code, length = code << 1 | bits.take(1), length + 1
        if (length, code) in words:
            out.append(words[length, code])
            length = code = 0
    bits.end()
    assert len(out) == count
    return out


def ans(source: Bytes, count: int) -> list[int]:
    sizes = lengths(source)
    bits = Bits(source)
    frequency = [1 << size - 1 | bits.take(size - 1) if size else 0 for size in sizes]
    bits.end()
    lanes, number = source.varint(), source.varint()
    states = list(struct.unpack(f"<{lanes}I", source.read(4 * lanes)))
    words = iter(struct.unpack(f"<{number}H", source.read(2 * number)))
    slots = [(s, sum(frequency[:s])) for s, f in enumerate(frequency) for _ in range(f)]
    out = []
    for i in range(count):
        x = states[i % lanes]
        j = x % len(slots)
        symbol, t = slots[j]
        x = frequency[symbol] * (x // len(slots)) + j - t
        states[i % lanes] = x if x >= 1 << 16 else x << 16 | next(words)
        out.append(symbol)
    assert set(states) == {1 << 16}
    assert next(words, None) is None
    return out


def symbols(source: Bytes, count: int) -> list[int]:
    if not count:
        return []
    kind = source.read(1)[0]
    if kind in (32, 33):
        return (huffman if kind == 32 else ans)(source, count)
    low, bits = source.varint(), Bits(source)
    out = [low + bits.take(kind) for _ in range(count)]
    bits.end()
    return out


def values(kind: str, source: Bytes, count: int, width: int) -> list[int]:
    def words(size: int) -> list[int]:
        return [int.from_bytes(source.read(width), "little") for _ in range(size)]

    if kind == "raw":
        return words(count)
    if kind == "planes":
        planes = [symbols(source, count) for _ in range(width)]
        return [sum(byte << 8 * at for at, byte in enumerate(cell)) for cell in zip(*planes)]  # noqa: B905 (planes are of one length)
    if kind == "split":
        cut = source.varint()
        turned = [a << cut | b for a, b in zip(*(symbols(source, count) for _ in "ab"))]  # noqa: B905 (of one length)
        return [word >> 1 | (word & 1) << 15 for word in turned]
    book = [0, *words(source.varint())]
    return [book[code] for code in symbols(source, count)]


def places(index: str, source: Bytes, count: int) -> list[int]:
    if index == "dense":
        return list(range(count))
    if index == "bitmap":
        raw = source.read((count + 7) // 8)
        return [i for i in range(count) if raw[i // 8] >> i % 8 & 1]
    number, limit = source.varint(), source.varint()
    found, at = [], 0
    for run in symbols(source, number):
        at += run
        if run < limit:
            found.append(at)
            at += 1
    return found


def widened(word: int, stored: str, dtype: str) -> int:
    """Return a word of the narrower format `stored` in the format `dtype`."""
    if stored == dtype:
        return word
    if stored == "BF16":
        return widened(word << 16, "F32", dtype)
    kinds = {"F16": "<e", "F32": "<f", "F64": "<d", "I8": "<b", "I16": "<h", "I32": "<i"}
    source, target = kinds[stored], kinds.get(dtype, "<q")
    number = struct.unpack(source, word.to_bytes(struct.calcsize(source), "little"))
    return int.from_bytes(struct.pack(target, *number), "little")


def width(dtype: str) -> int:
    return 1 if dtype == "BOOL" else WIDTHS[dtype.lstrip("BFCIU")]


def read(data: bytes) -> Iterator[tuple[str, list[Any]]]:
    """Yield the name, and format, shape and words, of every tensor of a file."""
    magic, version, stored_bytes, text_bytes, crc = struct.unpack("<8sIIII", data[:24])
    assert magic == bytes.fromhex("894E4E4346580D0A")
    assert version in (1, 2, 3)
    packed = data[24 : 24 + stored_bytes]
    text = zlib.decompress(packed)
    assert (zlib.crc32(packed), len(text)) == (crc, text_bytes)
    header, at = json.loads(text), 24 + stored_bytes
    rows = iter(header["tensors"])
    for number, checksum in header["segments"]:
        segment = [next(rows) for _ in range(number)]
        end = at + sum(row[5] for row in segment)
        assert zlib.crc32(data[at:end]) == checksum
        for name, dtype, stored, shape, codec, size in segment:
            source = Bytes(data[at : at + size])
            count = int(np.prod(shape, dtype=int))
            index, kind = codec.split("+")
            found = places(index, source, count)
            words = [0] * count
            for place, word in zip(
                found, values(kind, source, len(found), width(stored)), strict=True
            ):
                words[place] = widened(word, stored, dtype)
            assert source.read() == b""
            yield name, [dtype, shape, words]
            at += size
    assert at == len(data)


@pytest.mark.parametrize("version", [1, 2])
def test_the_page_suffices_to_read_the_golden_file(version: int) -> None:
    golden = Path(__file__).parent / "golden"
    found = dict(read((golden / f"version_{version}.nncfx").read_bytes()))
    assert found == json.loads((golden / f"version_{version}.json").read_text())


def as_written() -> dict[str, BitTensor]:
    """Return tensors that take every form the page has."""
    rng = np.random.default_rng(0)
    some = rng.choice([1.0, 2.0, 3.0, 4.5], 20_000).astype(np.float32)
    cases: dict[str, tuple[str, np.ndarray]] = {
        "bitmap": ("F32", some[:40] * (rng.random(40) < 0.5)),
        "runs": ("F32", some * (rng.random(20_000) < 0.02)),
        "lanes": ("F32", rng.choice(np.float32([1, 2, 3]), 20_000, p=[0.9, 0.06, 0.04])),
        "long runs": ("U8", (np.arange(9000) % 3000 == 5).astype(np.uint8)),
        "split": ("F16", rng.normal(size=5000).astype(np.float16)),
        "planes": ("F64", rng.normal(size=600)),
        "bf16": ("F32", ((1e20 * rng.normal(size=50)).astype(np.float32).view("<u4") >> 16 << 16)),
        "narrow": ("I64", rng.integers(-300, 300, 500)),
        "one kind": ("F16", np.full(300, 7, np.float16)),
        "none": ("F32", np.zeros((0, 3), np.float32)),
        "no zeros left": ("I32", np.zeros(77, np.int32)),
        "indexed": ("U8", np.minimum(rng.geometric(0.5, 270_000), 9).astype(np.uint8)),
        "bool": ("BOOL", rng.random(99) < 0.1),
        "scalar": ("U64", np.array(2**63, np.uint64)),
    }
    return {name: bits_of(array, dtype) for name, (dtype, array) in cases.items()}


@pytest.mark.parametrize("with_ans", [True, False])
def test_the_page_suffices_to_read_what_is_written_today(
    with_ans: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_ans:
        monkeypatch.setattr("nncfx.storage.codecs.ans.estimated_size", lambda _: float("inf"))
    tensors = as_written()
    found = dict(read(pack(Contents(tensors=tensors), "fast")))
    for name, tensor in tensors.items():
        assert found[name] == [tensor.dtype, list(tensor.shape), tensor.words.tolist()], name

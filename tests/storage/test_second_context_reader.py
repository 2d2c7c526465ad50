"""The page suffices for context-coded tensors: a reader of dictionaries, written from it alone.

It shares no line with nncfx.storage. Contexts are the page's tuples, made when they are first met.
"""

import io
import json
import math
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bit_tensors import bits_of
from nncfx.storage.codecs.number_formats import BitTensor
from nncfx.storage.formats.container import Contents, pack

SQUASH = {
    t: min(max(round(65536 / (1 + math.exp(-t / 256))), 24), 65512) for t in range(-2048, 2048)
}
IN_ORDER = [SQUASH[t] for t in range(-2048, 2048)]
FORMATS = {
    "I8": "<b",
    "I16": "<h",
    "I32": "<i",
    "F16": "<e",
    "F32": "<f",
    "F64": "<d",
    "I64": "<q",
}


def kept(low: int, value: int, high: int) -> int:
    return max(low, min(value, high))


STRETCH = [kept(-2047, bisect_left(IN_ORDER, 16 * q + 8) - 2048, 2047) for q in range(4096)]


def level(x: int) -> int:
    return (x**3).bit_length() if x < 4096 else level(min(x >> 8, 4095)) + 24


def middle(of: int) -> int:
    number = 2 ** (2 * of + 47)
    root = round(number ** (1 / 3))
    while root**3 > number:
        root -= 1
    while (root + 1) ** 3 <= number:
        root += 1
    return math.isqrt(root)


def odds_of(of: int, i: int) -> int:
    m = middle(of)
    tail = math.isqrt(2**24 + m * m) - 4096
    return kept(2**13, 2**20 * tail // m if i else 2**21 * tail // (m + tail), 2**20 - 2**13)


class Stream:
    def __init__(self, data: bytes) -> None:
        self.words = [*struct.unpack(f"<{len(data) // 2}H", data), 0, 0]
        self.low = self.words[0] << 32 | self.words[1] << 16 | self.words[2]
        self.used, self.span = 3, 2**48
        self.contexts: dict[tuple[Any, ...], list[int]] = {}
        self.mixers: dict[tuple[Any, ...], list[int]] = {}

    def bit(self, p: int) -> int:
        b = (self.span >> 16) * p
        bit = int(self.low < b)
        if bit:
            self.span = b
        else:
            self.low, self.span = self.low - b, self.span - b
        if self.span < 2**32:
            self.low = self.low << 16 | self.words[self.used]
            self.span, self.used = self.span << 16, self.used + 1
        return bit

    def decide(self, mixer: tuple[Any, ...], *names: tuple[tuple[Any, ...], int]) -> int:
        four = [self.contexts.setdefault(name, [odds, 3]) for name, odds in names]
        weights = self.mixers.setdefault(mixer, [19661] * 4)
        t = [STRETCH[odds >> 8] for odds, _ in four]
        s = sum(w * x for w, x in zip(weights, t, strict=True)) >> 16
        p = SQUASH[kept(-2047, s, 2047)]
        bit = self.bit(p)
        for place, context in enumerate(four):
            weights[place] += (5 * (65536 * bit - p) * t[place] + 2**17) >> 18
            odds, n = context
            context[0] += ((2**20 * bit - bit - odds) * (655360 // (10 * n + 16))) >> 16
            context[1] = min(n + 1, 255)
        return bit

    def integers(self, head: dict[str, int], rows: int, columns: int) -> np.ndarray:
        x = np.zeros((rows, columns), dtype=object)
        m, period = head["m"], head["P"]
        means = {"R": middle(head["a"]) >> 4, "Q": middle(head["a"]) >> 4}
        means |= {("C", c): means["R"] for c in range(columns)}
        means |= {("D", c): middle(head["b"]) >> 4 for c in range(columns)}
        means["K"] = middle(head["b"]) >> 4
        for r, c in np.ndindex(rows, columns):
            at = {"left1": (r, c - 1), "left2": (r, c - 2), "above": (r - 1, c)}
            at |= {"beside": (r - 1, c + 1), "far": (r, c - period)}
            around = {
                name: x[p] if p[0] >= 0 and 0 <= p[1] < columns else 0 for name, p in at.items()
            }
            x[r, c] = self.integer(m, means, c, (c % period) % 32, around)
        return x

    def integer(  # noqa: C901, PLR0912, PLR0915 (the steps of the page, in one piece)
        self, m: int, means: dict[Any, int], c: int, place: int, around: dict[str, int]
    ) -> int:
        z = {k: max(0, abs(one) - max(0, m - 1)) for k, one in around.items()}
        near = 4 * (z["left1"] + z["above"] + z["far"]) + 2 * (z["left2"] + z["beside"])
        v = level((2 * means["R"] + 2 * means["C", c] + means["Q"] + 16 * near) // 96)
        s = 0 if m else max(0, (v - 13) // 3 - 1)
        kind = 2 if m else int(s > 0)
        v -= 3 * s

        def names(i: int, v0: int, of: tuple[int, int], last: int) -> list[Any]:
            h = [min(23, max(0, level(one >> 4) - 3 * s) // 2) for one in of]
            near_by = (min(3, z["left1"] >> s), min(3, z["above"] >> s))
            return [
                ((kind, i, 0, v0), odds_of(v0, i)),
                ((kind, i, 1, *h), odds_of(sum(h), i)),
                ((kind, i, 2, place, *near_by), odds_of(12, i)),
                ((kind, i, 3, last), odds_of(last, i)),
            ]

        t, of = 0, (means["R"], means["C", c])
        v0, last = v, max(0, level(near) - 3 * s)
        while t < 12 and self.decide((kind, t), *names(t, v0, of, last)):
            t += 1
            if m and t == 1:
                of = (means["K"], means["D", c])
                u = level((2 * of[0] + of[1]) // 48)
                s = max(0, (u - 13) // 3 - 1)
                kind, v0, last = 4 if s else 3, u - 3 * s, v
        if t == 12:
            j = 0
            while self.bit(32768):
                j += 1
            g = 1
            for _ in range(j):
                g = 2 * g + self.bit(32768)
            t = 11 + g
        size = 0
        if t or not m:
            size = t - 1 if m else t
            j = 1
            for number in range(s):
                if number < 3:
                    low = [("low", j, 0, min(t, 12)), ("low", j, 1, s), ("low", j, 2, v)]
                    bit = self.decide(("low", j), *((one, 2**19) for one in (*low, ("low", j, 3))))
                    j = 2 * j + bit
                else:
                    bit = self.bit(32768)
                size = 2 * size + bit
            size += m
        negative = 0
        if size:
            sign = {k: (one > 0) - (one < 0) for k, one in around.items()}
            all_three = (sign["left1"], sign["above"], sign["far"])
            two = [("sign", 2, place, sign["far"]), ("sign", 3, place, sign["left1"])]
            of_sign = [("sign", 0, *all_three), ("sign", 1), *two]
            negative = self.decide(("sign",), *((one, 2**19) for one in of_sign))
            if m:
                means["K"] += (256 * (size - m) - means["K"]) >> 4
                means["D", c] += (256 * (size - m) - means["D", c]) >> 3
        counted = max(0, size - max(0, m - 1))
        for name, by in (("R", 5), ("Q", 2), (("C", c), 3)):
            means[name] += (256 * counted - means[name]) >> by
        return -size if negative else size


def varint(source: io.BytesIO) -> int:
    value = shift = 0
    while (byte := source.read(1)[0]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
    return value | byte << shift


def heads(source: io.BytesIO, meaning: str, wide: int, shape: list[int]) -> Iterator[Any]:
    """Yield the head of the meaning, and that of the layout."""
    if meaning == "integers":
        yield varint(source)
    elif meaning == "grid":
        yield np.frombuffer(source.read(4 * varint(source)), "<f4")
    else:
        p, q = varint(source), varint(source)
        words = [int.from_bytes(source.read(wide), "little") for _ in range(p + q)]
        yield {0: 0} | {k + 1 if k < p else p - k - 1: word for k, word in enumerate(words)}
    f, a = source.read(2)
    period = varint(source) if f & 4 else max(1, math.prod(shape[2:]))
    sparse = [varint(source), source.read(1)[0]] if f & 2 else [0, 0]
    yield {"f": f, "a": a, "P": period, "m": sparse[0], "b": sparse[1]}
    yield source.read(2 * varint(source)) if f & 16 else b""


def read(data: bytes) -> Iterator[tuple[str, list[Any]]]:  # noqa: C901, PLR0912, PLR0915 (see above)
    """Yield the name, format, shape and words of the context-coded tensors of a file."""
    _, version, stored_bytes, _, _ = struct.unpack("<8sIIII", data[:24])
    assert version in {3, 4}
    header, at = json.loads(zlib.decompress(data[24 : 24 + stored_bytes])), 24 + stored_bytes
    left = iter(header["tensors"])
    for number, checksum in header["segments"]:
        begin, parts = at, []
        for row in (next(left) for _ in range(number)):
            if row[4].startswith("context+"):
                source = io.BytesIO(data[at : at + row[5]])
                wide = struct.calcsize(FORMATS.get(row[2], "<B"))
                wide = 2 if row[2] in ("BF16", "U16") else 4 if row[2] == "U32" else wide
                found = heads(source, row[4].split("+")[1], wide, row[3])
                meaning, head, first = found
                shares = [first, source.read()] if head["f"] & 16 else [source.read(), b""]
                assert version == 4 or not head["f"] & 16
                parts.append((row, wide, meaning, head, shares))
            at += row[5]
        assert zlib.crc32(data[begin:at]) == checksum
        lanes = [b"".join(part[4][lane] for part in parts) for lane in (0, 1)]
        streams = [Stream(lane) if lane else None for lane in lanes]
        for (name, dtype, stored, shape, codec, _), wide, meaning, head, _ in parts:
            axes = [1, 0, *range(2, len(shape))] if head["f"] & 1 else list(range(len(shape)))
            turned = [shape[axis] for axis in axes]
            count = math.prod(shape)
            rows = turned[0] if len(shape) > 1 else count
            if rows and count // rows > 2**17:
                rows = count
            lower = rows // 2 if head["f"] & 16 else 0
            halves = [
                stream.integers(head, part, count // rows if rows else 0).reshape(-1)
                for stream, part in zip(streams, (rows - lower, lower), strict=True)
                if stream and part
            ]
            integers = np.concatenate(halves).reshape(turned).transpose(axes)
            words = np.zeros(shape, dtype=object)
            for index, k in np.ndenumerate(integers):
                if codec == "context+integers":
                    word = (k + meaning) % 2 ** (8 * wide)
                elif codec == "context+grid":
                    scale = meaning[index[0] if meaning.size > 1 else 0]
                    word = int((np.float32(k) * scale).view("<u4"))
                else:
                    word = meaning[k]
                if stored != dtype:
                    if stored == "BF16":
                        word, stored_as = word << 16, "<f"
                    else:
                        stored_as = FORMATS[stored]
                    raw = word.to_bytes(struct.calcsize(stored_as), "little")
                    (value,) = struct.unpack(stored_as, raw)
                    word = int.from_bytes(struct.pack(FORMATS[dtype], value), "little")
                words[index] = word
            yield name, [dtype, shape, words.reshape(-1).tolist()]
        assert all(not stream or stream.used == len(stream.words) for stream in streams), name
    assert at == len(data)


def as_written() -> dict[str, BitTensor]:
    """Return tensors that take every form the page has."""
    rng = np.random.default_rng(0)
    rows = np.exp(rng.normal(0, 1, (24, 1)))
    waves = np.sin(np.arange(48) * 2 * np.pi / 12) * 3
    large = np.rint(rng.laplace(0, 40, (12, 40))).astype("<f4")
    scales = rng.uniform(0.01, 0.02, (6, 1, 1, 1)).astype(np.float32)
    codes = rng.integers(0, 5, (30, 40)) * (rng.random((30, 40)) < rng.random((30, 1)) ** 2)
    book = np.array([0, 1.1, -2.3, -0.0, 7e4], "<f4")
    cases: dict[str, tuple[str, np.ndarray]] = {
        "fine": ("I8", np.rint(rng.laplace(0, 1.2, (24, 20)) * rows).clip(-128, 127).astype("i1")),
        "swapped": (
            "I8",
            np.rint(rng.normal(0, 2, (30, 24)) * rows.T).clip(-128, 127).astype("i1"),
        ),
        "coarse": ("I16", large.astype("<i2")),
        "escapes": ("I32", np.where(rng.random((9, 9)) < 0.1, 2**31 - 1, 0).astype("<i4")),
        "lowest": ("I8", np.full((6, 6), -128, np.int8)),
        "sparse": ("F32", np.float32(0.01) * large * (np.abs(large) > 30) + np.float32(0)),
        "sparser": (
            "F32",
            np.float32(0.3) * np.sign(large) * np.float32(3) * (np.abs(large) > 50)
            + np.float32(0),
        ),
        "kernels": (
            "F32",
            np.rint(rng.laplace(0, 1, (6, 5, 3, 3))).astype("<f4") * scales + np.float32(0),
        ),
        "periodic": ("I8", np.rint(waves + rng.normal(0, 0.5, (20, 48))).astype("i1")),
        "codebook": ("F32", book[codes]),
        "half": ("F16", book[codes // 2].astype("<f2")),
        "narrow": ("F32", np.array([0, 2.0**70, -(2.0**-50), 3, 0], "<f4")[codes]),
        "unsigned": ("U8", rng.binomial(255, 0.5, (16, 16)).astype("u1")),
        "bool": ("BOOL", codes > 0),
        "long": ("I64", codes.astype("<i8")),
        "halves": ("I8", np.rint(rng.laplace(0, 9, (43, 50))).astype("i1")),
        "columns": (
            "I8",
            np.rint(rng.normal(0, 9, (40, 2, 5, 5)) * waves[:40, None, None, None])
            .clip(-128, 127)
            .astype("i1"),
        ),
    }
    return {name: bits_of(array, dtype) for name, (dtype, array) in cases.items()}


def test_the_page_suffices_to_read_what_is_written_today() -> None:
    tensors = as_written()
    file = pack(Contents(tensors=tensors), "small")
    found = dict(read(file))
    for name, words in found.items():
        tensor = tensors[name]
        assert words == [tensor.dtype, list(tensor.shape), tensor.words.tolist()], name
    assert len(found) >= len(tensors) - 3
    assert file[8] == 4


@pytest.mark.parametrize("version", [3, 4])
def test_the_page_suffices_to_read_the_golden_file(version: int) -> None:
    golden = Path(__file__).parent / "golden"
    wanted = json.loads((golden / f"version_{version}.json").read_text())
    found = dict(read((golden / f"version_{version}.nncfx").read_bytes()))
    assert found == {name: wanted[name] for name in found}
    assert len(found) >= 12

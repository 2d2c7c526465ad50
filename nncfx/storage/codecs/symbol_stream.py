"""Encode symbols as the smallest of a fixed-width, Huffman or ANS stream, within 0.1 %.

The first byte is the kind of stream. In [0, 16] it is a width: the smallest symbol follows as
varint, then the difference of each symbol from it in that many bits, highest bit first, padded
with zeros (width 0: all symbols are equal, no bits). 32 is a Huffman stream (see `huffman`), 33 an
ANS stream (see `ans`). An empty sequence takes no bytes.
"""

import functools
import math
from typing import Any, NamedTuple, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError
from nncfx.storage.codecs import ans, huffman
from nncfx.storage.codecs.byte_reader import ByteReader, varint
from nncfx.storage.compiled import pays_off

Symbols: TypeAlias = NDArray[np.unsignedinteger[Any]]

HUFFMAN = 32
ANS = 33
_WIDEST = 16
_CHUNK = 1 << 20
_HUFFMAN_SAVES = 0.001
"""The least share of bytes that Huffman must save, as it is read at a quarter of the speed."""


class SymbolReader(Protocol):
    """Reads the symbols of a stream in order, some at a time."""

    def read(self, count: int) -> NDArray[np.uint16]:
        """Return the next `count` symbols; the stream must have that many left."""


def pack_bits(symbols: Symbols, width: int) -> bytes:
    """Return each of `symbols`, below 2**width, in `width` bits in [0, 16], highest bit first.

    >>> pack_bits(np.array([1, 2, 3], dtype=np.uint16), 4).hex()
    '1230'
    """
    parts = []
    for start in range(0, symbols.size if width else 0, _CHUNK):
        chunk = symbols[start : start + _CHUNK]
        if width == 8:  # noqa: PLR2004 (whole bytes)
            parts.append(chunk.astype(np.uint8).tobytes())
            continue
        cells = chunk.astype(">u2").view(np.uint8).reshape(-1, 2)
        bits = np.unpackbits(cells, axis=1)[:, _WIDEST - width :]
        parts.append(np.packbits(bits).tobytes())
    return b"".join(parts)


def unpack_bits(raw: NDArray[np.uint8], first: int, count: int, width: int) -> NDArray[np.uint16]:
    """Return the `count` symbols from number `first` on that `pack_bits` wrote into `raw`.

    >>> unpack_bits(np.array([0x12, 0x30], dtype=np.uint8), 1, 2, 4).tolist()
    [2, 3]
    """
    if width == 8:  # noqa: PLR2004 (whole bytes)
        return raw[first : first + count].astype(np.uint16)
    out = np.zeros(count, dtype=np.uint16)
    if 0 < width < 8 and pays_off(count):  # noqa: PLR2004 (a window is two bytes)
        from nncfx.storage.codecs.word_kernels import unpack_cells  # with it comes numba

        unpack_cells(raw, first, width, out)
        return out
    for start in range(0, count if width else 0, _CHUNK):
        chunk = out[start : start + _CHUNK]
        byte, skipped = divmod((first + start) * width, 8)
        bits = np.unpackbits(raw[byte:], count=skipped + chunk.size * width)[skipped:]
        for column in range(width):
            chunk |= bits[column::width].astype(np.uint16) << (width - 1 - column)
    return out


@final
class FixedWidth:
    """Symbols of a fixed width; checks the padding first and every symbol when it is read.

    Attributes:
        width: Bits of a symbol.
        low: The smallest symbol; the differences from it are stored.
        raw: The bytes.
    """

    def __init__(self, source: ByteReader, count: int, width: int) -> None:
        self.low = source.varint()
        if width > _WIDEST or self.low >= 1 << _WIDEST:
            raise StorageError(
                f"The file is damaged: a symbol stream of kind {width}, from {self.low} on."
            )
        self.raw = np.frombuffer(source.take((count * width + 7) // 8), dtype=np.uint8)
        if self.raw.size and int(self.raw[-1]) & ((1 << (-count * width % 8)) - 1):
            raise StorageError("The file is damaged: padding bits are not zero.")
        self.width = width
        self._at = 0

    def read(self, count: int) -> NDArray[np.uint16]:
        """Return the next `count` symbols."""
        symbols = unpack_bits(self.raw, self.passed(count), count, self.width)
        if not self.low:
            return symbols
        if symbols.size and int(symbols.max()) + self.low >= 1 << _WIDEST:
            raise StorageError("The file is damaged: a symbol exceeds 16 bits.")
        return symbols + np.uint16(self.low)

    def passed(self, count: int) -> int:
        """Skip `count` symbols of `raw` and return the number of the first."""
        self._at += count
        return self._at - count


@final
class _Decoded:
    """Symbols that are already in memory."""

    def __init__(self, symbols: NDArray[np.uint16]) -> None:
        self._left = symbols

    def read(self, count: int) -> NDArray[np.uint16]:
        symbols, self._left = self._left[:count], self._left[count:]
        return symbols


class _Spread(NamedTuple):
    low: int  # the smallest symbol
    width: int  # bits of the largest symbol minus the smallest
    kinds: int
    entropy: float  # of order 0, in bytes

    def fixed_size(self, count: int) -> int:
        return 1 + len(varint(self.low)) + (count * self.width + 7) // 8


def _spread(counts: NDArray[np.int64]) -> _Spread:
    places = np.flatnonzero(counts)
    low, high, kinds = int(places[0]), int(places[-1]), places.size
    used = counts[places]
    bits = float((used * np.log2(used.sum() / used)).sum())
    return _Spread(low, (high - low).bit_length(), kinds, bits / 8)


def least_size(counts: NDArray[np.int64]) -> float:
    """Return a lower bound in bytes for any stream of symbols that occur `counts` times."""
    total = int(counts.sum())
    if not total:
        return 0.0
    spread = _spread(counts)
    # a table has at least a bit for each distinct symbol
    return min(spread.fixed_size(total), spread.entropy + spread.kinds / 8)


def _best(counts: NDArray[np.int64]) -> tuple[float, int]:
    """Return (bytes, kind) of the smallest stream; the size of ANS is an estimate."""
    return _best_of(counts.tobytes())


@functools.lru_cache(maxsize=64)
def _best_of(packed: bytes) -> tuple[float, int]:
    counts = np.frombuffer(packed, dtype=np.int64).copy()
    spread = _spread(counts)
    best: tuple[float, int] = spread.fixed_size(int(counts.sum())), spread.width
    if not spread.width:
        return best
    best = min(best, (1 + ans.estimated_size(counts), ANS))
    table = spread.kinds / 8
    most = (1 - _HUFFMAN_SAVES) * best[0]
    may_be_huffman = spread.entropy + table <= most and (
        pays_off(0) or huffman.least_size(counts) + table <= most
    )
    if may_be_huffman:
        size = 1 + huffman.encoded_size(counts)
        return (size, HUFFMAN) if size <= most else best
    return best


def symbols_size(counts: NDArray[np.int64]) -> float:
    """Return the size in bytes of the stream of symbols that occur `counts` times.

    The size is exact, except for ANS streams, where it is within a few bytes.
    """
    return _best(counts)[0] if counts.any() else 0


def encode_symbols(symbols: Symbols, lanes: int | None = None) -> bytes:
    """Return `symbols`, 1-D and below 65,536, as the smallest of the streams, within 0.1 %.

    With `lanes`, it is an ANS stream of that many lanes if at least two distinct symbols occur.

    >>> encode_symbols(np.array([5, 5, 5], dtype=np.uint8)).hex()
    '0005'
    """
    if not symbols.size:
        return b""
    counts = huffman.count_symbols(symbols)
    kind = _best(counts)[1]
    if lanes and math.isfinite(ans.estimated_size(counts)):
        return bytes([ANS]) + ans.encode(symbols, counts, lanes)
    if kind == HUFFMAN:
        return bytes([kind]) + huffman.encode(symbols)
    if kind == ANS:
        return bytes([kind]) + ans.encode(symbols, counts)
    low, width, *_ = _spread(counts)
    return bytes([width]) + varint(low) + pack_bits(symbols - symbols.dtype.type(low), width)


def open_symbols(source: ByteReader, count: int) -> SymbolReader:
    """Take the stream of the next `count` symbols from `source` and return its reader.

    Allocates in proportion to the bytes of the stream and at most 2 bytes per symbol of `count`,
    which the caller must have bounded.

    Raises:
        StorageError: The stream is damaged or truncated.
    """
    if not count:
        return _Decoded(np.zeros(0, dtype=np.uint16))
    kind = source.take(1)[0]
    if kind == HUFFMAN:
        return _Decoded(huffman.decode(source, count))
    if kind == ANS:
        return ans.AnsReader(source, count)
    return FixedWidth(source, count, kind)

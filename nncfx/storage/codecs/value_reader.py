"""The values of a tensor, read some at a time."""

from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.codecs.codebook import from_codes
from nncfx.storage.codecs.number_formats import Words
from nncfx.storage.codecs.symbol_stream import open_symbols
from nncfx.storage.compiled import pays_off

__all__ = ["ValueReader", "open_values"]

_WORD = 16


class ValueReader(Protocol):
    """Reads the values of a tensor in order."""

    def read(self, count: int) -> Words:
        """Return the next `count` words; no more than there are may be asked for."""


def open_values(kind: str, source: ByteReader, count: int, width: int) -> ValueReader:
    """Take the next `count` values, of `width` bytes and written as `kind`, from `source`.

    Args:
        kind: `raw`, `planes`, `split` or `codebook`, see `tensor_codecs`.
        source: The bytes.
        count: How many values follow.
        width: Bytes of a word.

    Raises:
        StorageError: The bytes are damaged or cut off.
    """
    if kind == "raw":
        return _Raw(source, count, width)
    if kind == "codebook":
        return _Codes(source, count, width)
    if kind == "split":
        return _Split(source, count, width)
    return _Planes(source, count, width)


@final
class _Raw:
    def __init__(self, source: ByteReader, count: int, width: int) -> None:
        self._left = np.frombuffer(source.take(count * width), dtype=f"<u{width}")

    def read(self, count: int) -> Words:
        words, self._left = self._left[:count], self._left[count:]
        return words


@final
class _Codes:
    def __init__(self, source: ByteReader, count: int, width: int) -> None:
        size = source.varint()
        if size >= 1 << 16:
            raise StorageError(f"The file is damaged: a codebook of {size} values.")
        self._table = np.zeros(size + 1, dtype=f"<u{width}")
        self._table[1:] = np.frombuffer(source.take(size * width), dtype=self._table.dtype)
        self._codes = open_symbols(source, count)

    def read(self, count: int) -> Words:
        return from_codes(self._codes.read(count), self._table)


@final
class _Split:
    def __init__(self, source: ByteReader, count: int, width: int) -> None:
        self._cut = source.varint()
        if width != 2 or not 0 < self._cut < _WORD:  # noqa: PLR2004 (bytes)
            raise StorageError(
                f"The file is damaged: words of {width} bytes are split at {self._cut} bits.",
            )
        self._parts = [open_symbols(source, count) for _ in range(2)]

    def read(self, count: int) -> Words:
        top, words = (part.read(count) for part in self._parts)
        largest, largest_low = _join(top, words, self._cut)
        if largest >> (_WORD - self._cut) or largest_low >> self._cut:
            raise StorageError("The file is damaged: a part of a split word is too large.")
        return words


def _join(top: NDArray[np.uint16], words: NDArray[np.uint16], cut: int) -> tuple[int, int]:
    """Do as `join_words` does, with numpy where there is no numba."""
    if pays_off(words.size):
        from nncfx.storage.codecs.word_kernels import join_words  # with it comes numba

        return join_words(top, words, cut)
    largest = int(top.max(initial=0)), int(words.max(initial=0))
    words |= top << cut
    np.bitwise_or(words >> 1, words << 15, out=words)
    return largest


@final
class _Planes:
    def __init__(self, source: ByteReader, count: int, width: int) -> None:
        self._planes = [open_symbols(source, count) for _ in range(width)]

    def read(self, count: int) -> Words:
        cells = np.empty((count, len(self._planes)), dtype=np.uint8)
        for byte, plane in enumerate(self._planes):
            symbols = plane.read(count)
            if symbols.size and int(symbols.max()) > 0xFF:  # noqa: PLR2004 (a byte)
                raise StorageError("The file is damaged: a byte plane holds more than bytes.")
            cells[:, byte] = symbols
        return cells.reshape(-1).view(f"<u{len(self._planes)}")

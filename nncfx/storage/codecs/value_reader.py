"""Read the values of a tensor, some at a time."""

from collections.abc import Callable
from typing import Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError
from nncfx.storage.codecs.ans import AnsReader
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.codecs.codebook import from_codes
from nncfx.storage.codecs.number_formats import Words
from nncfx.storage.codecs.symbol_stream import FixedWidth, open_symbols

_WORD, _BYTE = 16, 8

_Parts: TypeAlias = tuple[NDArray[np.uint16], int, int]
"""Words, and the largest of their high parts and of their low parts."""


class ValueReader(Protocol):
    """Reads the values of a tensor in order.

    Attributes:
        is_in_place: Whether a read allocates only its result.
    """

    is_in_place: bool

    def read(self, count: int) -> Words:
        """Return the next `count` words; the tensor must have that many left."""


def open_values(kind: str, source: ByteReader, count: int, width: int) -> ValueReader:
    """Take the next `count` values, of `width` bytes and written as `kind`, from `source`.

    The kinds are `raw`, `planes`, `split` and `codebook`; see `tensor_codecs`.

    Raises:
        StorageError: The bytes are damaged or truncated.
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
    is_in_place = False

    def __init__(self, source: ByteReader, count: int, width: int) -> None:
        self._left = np.frombuffer(source.take(count * width), dtype=f"<u{width}")

    def read(self, count: int) -> Words:
        words, self._left = self._left[:count], self._left[count:]
        return words


@final
class _Codes:
    is_in_place = False

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
                f"The file is damaged: words of {width} bytes are split at {self._cut} bits."
            )
        self._top, self._low = (open_symbols(source, count) for _ in range(2))
        self._together = self._read_together()
        self.is_in_place = self._together is not None

    def read(self, count: int) -> Words:
        words, largest, largest_low = (self._together or self._read_apart)(count)
        if largest >> (_WORD - self._cut) or largest_low >> self._cut:
            raise StorageError("The file is damaged: a part of a split word is too large.")
        return words

    def _read_together(self) -> Callable[[int], _Parts] | None:
        """Return a function that reads both streams in one loop, or None if they do not fit."""
        top, low = self._top, self._low
        if not (isinstance(top, AnsReader) and top.is_compiled and isinstance(low, FixedWidth)):
            return None
        if low.low or low.width != self._cut or low.width > _BYTE:
            return None

        def read(count: int) -> _Parts:
            words = np.empty(count, dtype=np.uint16)
            return words, top.read_split(low.raw, low.passed(count), low.width, words), 0

        return read

    def _read_apart(self, count: int) -> _Parts:
        top, words = self._top.read(count), self._low.read(count)
        largest = int(top.max(initial=0)), int(words.max(initial=0))
        words |= top << self._cut
        np.bitwise_or(words >> 1, words << 15, out=words)
        return words, *largest


@final
class _Planes:
    is_in_place = False

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

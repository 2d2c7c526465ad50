"""Codecs of one tensor's words: where the non-zeros are, and what they are.

A codec is spelt `index+values`. Index: `dense` (every word is a value, no bytes), `bitmap` (one
bit per word, lowest bit of each byte first), `runs` (zeros before each non-zero, see
`sparse_index`). Values: `raw` (little-endian words), `planes` (one symbol stream per byte of
the words, lowest byte first), `codebook` (varint K, K raw words, one stream of codes, where
code 0 is zero and code k the k-th word).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError
from nncfx.storage.byte_reader import ByteReader, varint
from nncfx.storage.codebook import Codebook, from_codes, to_codes
from nncfx.storage.huffman import count_symbols
from nncfx.storage.number_formats import Words
from nncfx.storage.sparse_index import positions_of_runs, to_runs, zeros_before
from nncfx.storage.symbol_stream import decode_symbols, encode_symbols, symbols_size

__all__ = ["CODECS", "decode_words", "encode_words"]

CODECS = tuple(
    f"{i}+{v}" for i in ("dense", "bitmap", "runs") for v in ("raw", "planes", "codebook")
)
"""The names of all codecs."""

RUN_LIMITS = (1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 4095)


class _Choice(NamedTuple):
    size: int
    name: str
    limit: int = 0  # of runs


def encode_words(words: Words, max_codes: int = 256) -> tuple[str, bytes]:
    r"""Return the codec that makes `words` smallest, and their bytes under it.

    Args:
        words: 1-D; a zero is a word without a bit set.
        max_codes: The most distinct non-zero words that still make a codebook.

    >>> encode_words(np.array([0, 0, 0, 7, 0, 0, 0, 0], dtype=np.uint8))
    ('bitmap+raw', b'\x08\x07')
    """
    positions = np.flatnonzero(words)
    kept = words[positions]
    book = to_codes(kept, max_codes)
    dense = min(_choices(words, kept.size, book))
    if kept.size < words.size:
        index = min(_index_choices(positions, words.size))
        values = min(_choices(kept, kept.size, book))
        if index.size + values.size < dense.size:
            head = _encode_index(index, positions, words.size)
            return f"{index.name}+{values.name}", head + _encode_values(values, kept, book)
    if dense.name == "codebook" and book is not None:
        codes = np.zeros(words.size, dtype=np.uint16)
        codes[positions] = book.codes
        book = Codebook(codes, book.values)
    return f"dense+{dense.name}", _encode_values(dense, words, book)


def _choices(words: Words, kept: int, book: Codebook | None) -> Iterator[_Choice]:
    yield _Choice(words.nbytes, "raw")
    if book is not None:
        yield _book_choice(book, words.size - kept)
    # Among so many zeros an index of the others is always smaller: save the time to count.
    if kept >= words.size // 4:
        sizes = (symbols_size(count_symbols(plane)) for plane in _planes(words))
        yield _Choice(sum(sizes), "planes")


def _book_choice(book: Codebook, zeros: int) -> _Choice:
    table = len(varint(book.values.size - 1)) + book.values[1:].nbytes
    counts = np.bincount(book.codes, minlength=1)
    counts[0] += zeros
    return _Choice(table + symbols_size(counts), "codebook")


def _planes(words: Words) -> NDArray[np.uint8]:
    return words.view(np.uint8).reshape(words.size, words.itemsize).T


def _index_choices(positions: NDArray[np.int64], size: int) -> Iterator[_Choice]:
    yield _Choice((size + 7) // 8, "bitmap")
    zeros, counts = _histogram(zeros_before(positions))
    for limit in RUN_LIMITS:
        runs = np.zeros(limit + 1, dtype=np.int64)
        np.add.at(runs, zeros % limit, counts)
        runs[limit] = int((zeros // limit * counts).sum())
        head = len(varint(int(runs.sum()))) + len(varint(limit))
        yield _Choice(head + symbols_size(runs), "runs", limit)
        if not runs[limit]:
            break  # no run is that long: a larger limit changes nothing


def _histogram(zeros: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if zeros.size and int(zeros.max()) < zeros.size:
        counts = np.bincount(zeros)
        present = np.flatnonzero(counts)
        return present, counts[present]
    return np.unique(zeros, return_counts=True)


def _encode_index(index: _Choice, positions: NDArray[np.int64], size: int) -> bytes:
    if index.name == "bitmap":
        bitmap = np.zeros(size, dtype=np.bool_)
        bitmap[positions] = True
        return np.packbits(bitmap, bitorder="little").tobytes()
    runs = to_runs(positions, index.limit)
    return varint(runs.size) + varint(index.limit) + encode_symbols(runs)


def _encode_values(values: _Choice, words: Words, book: Codebook | None) -> bytes:
    if values.name == "planes":
        return b"".join(encode_symbols(plane) for plane in _planes(words))
    if values.name == "codebook" and book is not None:
        table = varint(book.values.size - 1) + book.values[1:].tobytes()
        return table + encode_symbols(book.codes)
    return words.tobytes()


def decode_words(codec: str, source: ByteReader, count: int, width: int) -> Words:
    """Return `count` words of `width` bytes that `encode_words` wrote under `codec`.

    Allocates at most 40 bytes per word of the caller's `count`, beyond what the streams take.

    Raises:
        StorageError: The codec is unknown, or the bytes are damaged or cut off.
    """
    if codec not in CODECS:
        raise StorageError(f"The file is damaged, or newer than this reader: codec {codec!r}.")
    index, _, values = codec.partition("+")
    if index == "dense":
        return _decode_values(values, source, count, width)
    positions = _decode_index(index, source, count)
    words = np.zeros(count, dtype=f"<u{width}")
    words[positions] = _decode_values(values, source, positions.size, width)
    return words


def _decode_index(index: str, source: ByteReader, size: int) -> NDArray[np.int64]:
    if index == "bitmap":
        raw = np.frombuffer(source.take((size + 7) // 8), dtype=np.uint8)
        bits = np.unpackbits(raw, bitorder="little")
        if bits[size:].any():
            raise StorageError("The file is damaged: padding bits are not zero.")
        return np.flatnonzero(bits)
    runs, limit = source.varint(), source.varint()
    if runs > size or not 1 <= limit <= RUN_LIMITS[-1]:
        raise StorageError(f"The file is damaged: {runs} runs up to {limit} for {size} weights.")
    return positions_of_runs(decode_symbols(source, runs), limit, size)


def _decode_values(values: str, source: ByteReader, count: int, width: int) -> Words:
    if values == "raw":
        return np.frombuffer(source.take(count * width), dtype=f"<u{width}")
    if values == "codebook":
        size = source.varint()
        if size >= 1 << 16:
            raise StorageError(f"The file is damaged: a codebook of {size} values.")
        table = np.zeros(size + 1, dtype=f"<u{width}")
        table[1:] = np.frombuffer(source.take(size * width), dtype=table.dtype)
        return from_codes(decode_symbols(source, count), table)
    planes = np.empty((count, width), dtype=np.uint8)
    for byte in range(width):
        symbols = decode_symbols(source, count)
        if symbols.size and int(symbols.max()) > 0xFF:  # noqa: PLR2004 (a byte)
            raise StorageError("The file is damaged: a byte plane holds more than bytes.")
        planes[:, byte] = symbols
    return planes.reshape(-1).view(f"<u{width}")

"""Encode and decode the words of one tensor: positions of the non-zeros, and their values.

A codec is named `index+values`. Index: `dense` (every word is a value, no bytes), `bitmap` (one
bit per word, lowest bit of each byte first), `runs` (zeros before each non-zero, see
`sparse_index`). Values: `raw` (little-endian words), `planes` (one symbol stream per byte of
the words, lowest byte first), `split` (16-bit floats rotated left by a bit, so that the sign comes
last: varint c, symbol streams of all but the lowest c bits and of these), `codebook` (varint K, K
raw words, one stream of codes, where code 0 is zero and code k the k-th word).

Both directions process a tensor in chunks, so only the coded bytes take memory in proportion to
its size.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError
from nncfx.storage.codecs import ans
from nncfx.storage.codecs.byte_reader import ByteReader, varint
from nncfx.storage.codecs.codebook import Codebook, to_codes
from nncfx.storage.codecs.huffman import count_symbols
from nncfx.storage.codecs.number_formats import Words
from nncfx.storage.codecs.sparse_index import RunPositions, to_runs
from nncfx.storage.codecs.symbol_stream import (
    encode_symbols,
    least_size,
    open_symbols,
    pack_bits,
    symbols_size,
)
from nncfx.storage.codecs.value_reader import open_values

CODECS = tuple(
    f"{i}+{v}" for i in ("dense", "bitmap", "runs") for v in ("raw", "planes", "codebook", "split")
)
"""The names of all codecs."""

Zeros: TypeAlias = NDArray[np.unsignedinteger[Any]]

RUN_LIMITS = (1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 4095)
"""The run limits that are tried; a reader accepts any limit up to the last."""
_CUTS = (8, 6)
"""Bits of sign and mantissa that are stored plain; with 6, two stay with the exponent."""
_LANE_BITS = 12
"""Bits of the number of symbols per lane of split words: a lane costs 3 bytes, so few are used."""
_FEWEST_SPLIT = 1 << 12
_CHUNK = 1 << 18
_POPULATION = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1, dtype=np.uint8)


class _Choice(NamedTuple):
    size: float
    name: str
    limit: int = 0  # the run limit, or the bits cut off split words


class _Option(NamedTuple):
    name: str
    fixed: float  # bytes outside its streams
    counts: tuple[NDArray[np.int64], ...] = ()  # of the symbols of each stream
    limit: int = 0


def _smallest(options: Iterable[_Option]) -> _Choice:
    """Return the smallest option, without measuring options that cannot be smallest."""
    bounds = [(one.fixed + sum(map(least_size, one.counts)), one) for one in options]
    best: _Choice | None = None
    for least, one in sorted(bounds, key=lambda bound: bound[0]):
        if best is not None and least > best.size:
            break
        found = _Choice(one.fixed + sum(map(symbols_size, one.counts)), one.name, one.limit)
        best = found if best is None else min(best, found)
    assert best is not None  # noqa: S101 (plain words and bits are always an option)
    return best


class _Sparse(NamedTuple):
    kept: Words
    zeros: Zeros  # before each kept word


def encode_words(words: Words) -> tuple[str, bytes]:
    r"""Return the codec that makes `words`, 1-D, smallest, and their bytes under it.

    In addition to the result it allocates, for each non-zero word, its width and 8 bytes (10 if
    there are more than 65,535 zeros in a row), and 16 MiB. A zero is a word without a bit set.

    >>> encode_words(np.array([0, 0, 0, 7, 0, 0, 0, 0], dtype=np.uint8))
    ('bitmap+raw', b'\x08\x07')
    """
    sparse = _sparse(words)
    book = to_codes(sparse.kept)
    dense = _smallest(_options(words, sparse.kept.size, book))
    if sparse.kept.size < words.size:
        index = _smallest(_index_options(sparse.zeros, words.size))
        values = _smallest(_options(sparse.kept, sparse.kept.size, book))
        if index.size + values.size < dense.size:
            head = _encode_index(index, words, sparse.zeros)
            tail = _encode_values(values, sparse.kept, book)
            return f"{index.name}+{values.name}", head + tail
    if dense.name == "codebook" and book is not None:
        codes = np.zeros(words.size, dtype=np.uint16)
        codes[words != 0] = book.codes
        book = Codebook(codes, book.values)
    return f"dense+{dense.name}", _encode_values(dense, words, book)


def _sparse(words: Words) -> _Sparse:
    count = int(np.count_nonzero(words))
    narrow = "<u4" if words.size < 1 << 32 else "<u8"
    if count == words.size:
        return _Sparse(words, np.zeros(0, dtype=narrow))
    kept, zeros = np.empty(count, dtype=words.dtype), np.empty(count, dtype=narrow)
    at, last = 0, -1
    for start in range(0, words.size, _CHUNK):
        chunk = words[start : start + _CHUNK]
        positions = np.flatnonzero(chunk != 0)
        if positions.size:
            end = at + positions.size
            chunk.take(positions, out=kept[at:end], mode="clip")
            zeros[at] = start + positions[0] - last - 1
            zeros[at + 1 : end] = np.diff(positions) - 1
            at, last = end, start + int(positions[-1])
    is_short = np.can_cast(np.min_scalar_type(zeros.max(initial=0)), np.uint16)
    return _Sparse(kept, zeros.astype("<u2") if is_short else zeros)


def _options(words: Words, kept: int, book: Codebook | None) -> Iterator[_Option]:
    yield _Option("raw", words.nbytes)
    if book is not None:
        yield _book_option(book, words.size - kept)
    # With so many zeros, a sparse index is always smaller, so do not count.
    if kept >= words.size // 4:
        yield _Option("planes", 0, tuple(map(count_symbols, _planes(words))))
        if words.itemsize == 2 and words.size >= _FEWEST_SPLIT:  # noqa: PLR2004 (bytes)
            yield from _split_options(words)


def _split_options(words: Words) -> Iterator[_Option]:
    turned = _turned(words)
    for cut in _CUTS:
        counts = count_symbols(turned >> np.uint16(cut))
        yield _Option("split", words.size * cut / 8 + 3, (counts,), cut)


def _turned(words: Words) -> NDArray[np.uint16]:
    return (words << 1 | words >> 15).astype(np.uint16)


def _book_option(book: Codebook, zeros: int) -> _Option:
    counts = np.append(count_symbols(book.codes), 0)  # so that the counts are never empty
    counts[0] += zeros
    return _Option("codebook", len(_table(book)), (counts,))


def _table(book: Codebook) -> bytes:
    return varint(book.values.size - 1) + book.values[1:].tobytes()


def _planes(words: Words) -> NDArray[np.uint8]:
    return words.view(np.uint8).reshape(words.size, words.itemsize).T


def _index_options(zeros: Zeros, size: int) -> Iterator[_Option]:
    yield _Option("bitmap", (size + 7) // 8)
    lengths, counts = _histogram(zeros)
    for limit in RUN_LIMITS:
        runs = _run_counts(lengths, counts, limit)
        head = len(varint(int(runs.sum()))) + len(varint(limit))
        yield _Option("runs", head, (runs,), limit)
        if not runs[limit]:
            break  # no run is that long, so a larger limit changes nothing


def _run_counts(
    lengths: NDArray[np.int64], counts: NDArray[np.int64], limit: int
) -> NDArray[np.int64]:
    runs = np.zeros(limit + 1, dtype=np.int64)
    np.add.at(runs, lengths % limit, counts)
    runs[limit] = int((lengths // limit * counts).sum())
    return runs


def _histogram(zeros: Zeros) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if zeros.size and int(zeros.max()) < zeros.size:
        counts = count_symbols(zeros)
        present = np.flatnonzero(counts)
        return present, counts[present]
    lengths, counts = np.unique(zeros, return_counts=True)
    return lengths.astype(np.int64), counts


def _encode_index(index: _Choice, words: Words, zeros: Zeros) -> bytes:
    if index.name == "bitmap":
        return np.packbits(words != 0, bitorder="little").tobytes()
    chunks = [zeros[at : at + _CHUNK] for at in range(0, zeros.size, _CHUNK)]
    skips = sum(int((chunk // index.limit).sum(dtype=np.int64)) for chunk in chunks)
    runs = np.empty(zeros.size + skips, dtype=np.uint16)
    at = 0
    for chunk in chunks:
        part = to_runs(chunk, index.limit)
        runs[at : at + part.size] = part
        at += part.size
    return varint(runs.size) + varint(index.limit) + encode_symbols(runs)


def _encode_values(values: _Choice, words: Words, book: Codebook | None) -> bytes:
    if values.name == "split":
        turned, cut = _turned(words), values.limit
        low = turned & np.uint16((1 << cut) - 1)
        # all are about equally frequent, and plain bits are read fastest
        lanes = min(max(1, words.size >> _LANE_BITS), ans.MOST_LANES)
        plain = bytes([cut]) + varint(0) + pack_bits(low, cut)
        return varint(cut) + encode_symbols(turned >> np.uint16(cut), lanes) + plain
    if values.name == "planes":
        return b"".join(encode_symbols(plane) for plane in _planes(words))
    if values.name == "codebook" and book is not None:
        return _table(book) + encode_symbols(book.codes)
    return words.tobytes()


def decode_words(
    codec: str,
    source: ByteReader,
    count: int,
    width: int,
    widened: Callable[[Words], Words] | None = None,
) -> Words:
    """Return `count` words of `width` bytes that `encode_words` wrote under `codec`, `widened`.

    `widened` converts words to another format, in which zero has no bit set either; None leaves
    them unchanged.

    Allocates at most 3 bytes per word of the caller's `count`, and 40 MiB, in addition to the
    words and the bytes of `source`; a Huffman stream also takes 80 MiB and 2 bytes per symbol.

    Raises:
        StorageError: The codec is unknown, or the bytes are damaged or truncated.
    """
    if codec not in CODECS:
        raise StorageError(f"The file is damaged, or newer than this reader: codec {codec!r}.")
    convert = widened or _as_they_are
    index, _, kind = codec.partition("+")
    if index == "dense":
        values = open_values(kind, source, count, width)
        if values.is_in_place and widened is None:
            return values.read(count)
        words = np.empty(count, dtype=_dtype(width, convert))
        for start in range(0, count, _CHUNK):
            part = words[start : start + _CHUNK]
            part[:] = convert(values.read(part.size))
        return words
    positions = _Bitmap(source, count) if index == "bitmap" else _runs(source, count)
    values = open_values(kind, source, positions.count, width)
    words = np.zeros(count, dtype=_dtype(width, convert))
    for found in positions:
        words[found] = convert(values.read(found.size))
    return words


def _as_they_are(words: Words) -> Words:
    return words


def _dtype(width: int, convert: Callable[[Words], Words]) -> np.dtype[np.unsignedinteger[Any]]:
    return convert(np.zeros(0, dtype=f"<u{width}")).dtype


class _Bitmap:
    """The positions of the set bits, chunk by chunk."""

    def __init__(self, source: ByteReader, size: int) -> None:
        self._raw = np.frombuffer(source.take((size + 7) // 8), dtype=np.uint8)
        if size % 8 and int(self._raw[-1]) >> size % 8:
            raise StorageError("The file is damaged: padding bits are not zero.")
        self.count = int(_POPULATION[self._raw].sum(dtype=np.int64))

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        for start in range(0, self._raw.size, _CHUNK // 8):
            bits = np.unpackbits(self._raw[start : start + _CHUNK // 8], bitorder="little")
            yield np.flatnonzero(bits) + 8 * start


def _runs(source: ByteReader, size: int) -> RunPositions:
    runs, limit = source.varint(), source.varint()
    if runs > size or not 1 <= limit <= RUN_LIMITS[-1]:
        raise StorageError(f"The file is damaged: {runs} runs up to {limit} for {size} weights.")
    return RunPositions(open_symbols(source, runs).read(runs), limit, size)

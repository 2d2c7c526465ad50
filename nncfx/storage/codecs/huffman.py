"""Encode and decode canonical Huffman streams of 16-bit symbols by numpy.

A stream is the code table (see `prefix_code`), the number of bits as varint, for streams of
more than 262,144 symbols the index, then the bits, highest first, padded with zeros. The index
has the bit length of each full block of 2,048 symbols as little-endian uint16, so all blocks can
be decoded in lockstep, one lane per block. A stream of one distinct symbol has no bits.
"""

import heapq
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader, varint
from nncfx.storage.codecs.prefix_code import (
    canonical_codes,
    code_lengths,
    decoding_table,
    pack_lengths,
    unpack_lengths,
)
from nncfx.storage.codecs.table_limits import LONGEST_CODE
from nncfx.storage.compiled import pays_off

Symbols: TypeAlias = NDArray[np.uint16]

BLOCK = 2048
INDEXED_ABOVE = 1 << 18
_CHUNK = 128 * BLOCK
_LANES = 1024
_ROWS = 64
_WALK_BYTES = 1 << 13
_PAD = BLOCK * LONGEST_CODE // 8 + 16


class _Bits(NamedTuple):
    data: NDArray[np.uint8]  # padded with zeros, so a look-ahead never leaves it
    total: int
    table: NDArray[np.uint64]
    width: int


def count_symbols(symbols: NDArray[np.unsignedinteger[Any]]) -> NDArray[np.int64]:
    """Return how often each symbol occurs, up to the largest symbol; [] for no symbols."""
    counts = np.zeros(int(symbols.max()) + 1 if symbols.size else 0, dtype=np.int64)
    # in chunks, because bincount copies to int64: a large byte plane would grow eightfold
    for start in range(0, symbols.size, _CHUNK):
        counts += np.bincount(symbols[start : start + _CHUNK], minlength=counts.size)
    return counts


def encode(symbols: NDArray[np.unsignedinteger[Any]]) -> bytes:
    """Return `symbols`, 1-D and below 65,536, as one stream; b"" for an empty array.

    The number of bits is the minimum over all prefix codes with words of at most 16 bits.

    >>> encode(np.array([7, 7, 7], dtype=np.uint8)).hex()
    '08c7e000'
    """
    if not symbols.size:
        return b""
    counts = count_symbols(symbols)
    lengths = code_lengths(counts)
    table = pack_lengths(lengths)
    if np.count_nonzero(lengths) == 1:
        return table + varint(0)
    total = int((counts * lengths).sum())
    bits, blocks = _encode_bits(symbols, lengths, total)
    full = symbols.size // BLOCK if symbols.size > INDEXED_ABOVE else 0
    index = blocks[:full].astype("<u2").tobytes()
    return b"".join([table, varint(total), index, bits.tobytes()[: (total + 7) // 8]])


def encoded_size(counts: NDArray[np.int64]) -> int:
    """Return the exact size in bytes of the stream of symbols that occur `counts` times."""
    total = int(counts.sum())
    if not total:
        return 0
    if np.count_nonzero(counts) > 1 and pays_off(total):
        from nncfx.storage.codecs import size_kernel  # with it comes numba

        blocks = total // BLOCK if total > INDEXED_ABOVE else 0
        return size_kernel.huffman_size(counts) + 2 * blocks
    lengths = code_lengths(counts)
    bits = int((counts * lengths).sum()) if np.count_nonzero(lengths) > 1 else 0
    blocks = total // BLOCK if total > INDEXED_ABOVE and bits else 0
    return len(pack_lengths(lengths)) + len(varint(bits)) + 2 * blocks + (bits + 7) // 8


def least_size(counts: NDArray[np.int64]) -> float:
    """Return the size in bytes of Huffman's code with words of any length, without its table.

    Source: Huffman (1952), A method for the construction of minimum-redundancy codes.
    """
    heap = sorted(counts[counts > 0].tolist())
    bits = 0
    while len(heap) > 1:
        merged = heapq.heappop(heap) + heap[0]
        heapq.heapreplace(heap, merged)
        bits += merged
    return bits / 8


def _encode_bits(
    symbols: NDArray[np.unsignedinteger[Any]], lengths: NDArray[np.uint8], total: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the `total` bits, padded with zeros, and the number of bits of each block."""
    codes = canonical_codes(lengths)
    if pays_off(symbols.size):
        from nncfx.storage.codecs.word_kernels import huffman_write  # with it comes numba

        blocks = np.zeros(-(-symbols.size // BLOCK), dtype=np.int64)
        out = np.zeros((total + 7) // 8, dtype=np.uint8)
        huffman_write(symbols, lengths, codes, BLOCK, blocks, out)
        return out, blocks
    wide = lengths.astype(np.int64)
    left = (64 - wide).astype(np.uint64)
    words = np.where(wide > 0, codes.astype(np.uint64) << (left & 63), 0)
    starts = range(0, symbols.size, _CHUNK)
    blocks = np.concatenate(
        [
            np.add.reduceat(wide[part], np.arange(0, part.size, BLOCK))
            for part in (symbols[at : at + _CHUNK] for at in starts)
        ]
    )
    cells = np.zeros(total // 64 + 2, dtype=np.uint64)
    at_bit = 0
    for start in starts:
        part = symbols[start : start + _CHUNK]
        at_bit += _place(cells, at_bit, wide[part], words[part])
    return cells.astype(">u8").view(np.uint8), blocks


def _place(
    out: NDArray[np.uint64], at_bit: int, lengths: NDArray[np.int64], words: NDArray[np.uint64]
) -> int:
    """Write the left-aligned code `words` into the 64-bit cells of `out`; return the bits used."""
    ends = np.cumsum(lengths)
    start = ends - lengths + at_bit
    cell, offset = start >> 6, (start & 63).astype(np.uint64)
    first = np.flatnonzero(np.diff(cell, prepend=np.int64(-1)))
    out[cell[first]] |= np.bitwise_or.reduceat(words >> offset, first)
    spill = np.flatnonzero((start & 63) + lengths > 64)  # noqa: PLR2004 (bits of a cell)
    # At most one word crosses the end of each cell, so the indices below are distinct.
    out[cell[spill] + 1] |= words[spill] << (64 - offset[spill])
    return int(ends[-1])


def decode(source: ByteReader, count: int) -> Symbols:
    """Return the next `count` symbols of `source`; 0 symbols take no bytes.

    Allocates at most 2 bytes per symbol of the caller's `count`, twice the bytes of the
    stream, and 80 MiB.

    Raises:
        StorageError: The stream is truncated, its table is not a complete prefix code, its index
            contradicts its bits, or it does not hold exactly `count` symbols.
    """
    if not count:
        return np.zeros(0, dtype=np.uint16)
    lengths = unpack_lengths(source)
    total = source.varint()
    used = np.flatnonzero(lengths)
    if used.size == 1:
        _check(total == 0)
        return np.full(count, used[0], dtype=np.uint16)
    _check(count <= total <= LONGEST_CODE * count)
    full = count // BLOCK if count > INDEXED_ABOVE else 0
    index = np.frombuffer(source.take(2 * full), dtype="<u2").astype(np.int64)
    raw = np.frombuffer(source.take((total + 7) // 8), dtype=np.uint8)
    _check(total % 8 == 0 or int(raw[-1]) & ((1 << (-total % 8)) - 1) == 0)
    bits = _Bits(
        np.concatenate([raw, np.zeros(_PAD, dtype=np.uint8)]), total, *decoding_table(lengths)
    )
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(index)])
    _check(int(starts[-1]) <= total)
    out = np.empty(count, dtype=np.uint16)
    if full:
        _lockstep(bits, starts, out[: full * BLOCK].reshape(full, BLOCK))
    _walk(bits, int(starts[-1]), out[full * BLOCK :])
    return out


def _check(holds: bool) -> None:
    if not holds:
        raise StorageError("The file is damaged: a Huffman stream contradicts its own lengths.")


def _walk(bits: _Bits, at: int, out: Symbols) -> None:
    """Decode one lane: look up the code length at every bit, then walk from word to word."""
    shifts = np.arange(32 - bits.width, 24 - bits.width, -1, dtype=np.int64)
    lengths_of = (bits.table & 0xFF).astype(np.uint8)
    symbols_of = (bits.table >> np.uint64(8)).astype(np.uint16)
    done = 0
    while at < bits.total:
        first = at // 8
        size = min(_WALK_BYTES, (bits.total + 7) // 8 - first)
        near = _cells(bits.data[first : first + size + 3], 4).astype(np.int64)
        codes = (near[:, None] >> shifts & ((1 << bits.width) - 1)).reshape(-1)
        length = lengths_of[codes].tobytes()
        stop, position = min(8 * size, bits.total - 8 * first), at - 8 * first
        path: list[int] = []
        while position < stop:
            path.append(position)
            position += length[position]
        _check(done + len(path) <= out.size)
        out[done : done + len(path)] = symbols_of[codes[path]]
        done += len(path)
        at = 8 * first + position
    _check(at == bits.total and done == out.size)


def _cells(data: NDArray[np.uint8], size: int) -> NDArray[np.uint64]:
    """Return, for each byte, the number formed by the `size` bytes that start there."""
    near = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(data, size))
    return near.view(f">u{size}")[:, 0].astype(np.uint64)


def _lockstep(bits: _Bits, starts: NDArray[np.int64], out: NDArray[np.uint16]) -> None:
    """Decode all full blocks: one lane each, `_LANES` at a time."""
    for lane in range(0, len(out), _LANES):
        begin = starts[lane : lane + _LANES + 1]
        first = int(begin[0]) // 8
        data = bits.data[first : int(begin[-1]) // 8 + _PAD]
        ends = _decode_lanes(bits, data, begin[:-1] - 8 * first, out[lane : lane + _LANES])
        _check(bool(np.array_equal(ends + 8 * first, begin[1:])))


def _decode_lanes(
    bits: _Bits, data: NDArray[np.uint8], begin: NDArray[np.int64], out: NDArray[np.uint16]
) -> NDArray[np.int64]:
    cells = _cells(data, 8)
    position = begin.astype(np.uint64)
    shift, seven, mask = np.uint64(64 - bits.width), np.uint64(7), np.uint64(0xFF)
    per_refill = 57 // bits.width  # a cell shifted by up to 7 bits has 57 valid bits
    rows = np.empty((_ROWS, position.size), dtype=np.uint64)
    code, length = np.empty_like(position), np.empty_like(position)
    cell = code
    for step in range(BLOCK):
        row = rows[step % _ROWS]
        if step % per_refill == 0:
            cell = cells[(position >> np.uint64(3)).view(np.int64)] << (position & seven)
        np.right_shift(cell, shift, out=code)
        np.take(bits.table, code.view(np.int64), out=row, mode="clip")
        np.bitwise_and(row, mask, out=length)
        np.left_shift(cell, length, out=cell)
        np.add(position, length, out=position)
        if step % _ROWS == _ROWS - 1:
            out[:, step + 1 - _ROWS : step + 1] = (rows >> np.uint64(8)).T
    return position.astype(np.int64)

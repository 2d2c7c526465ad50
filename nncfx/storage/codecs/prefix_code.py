"""Compute optimal prefix codes and pack their tables.

The table lists the length of each symbol's code word in symbol order, as changes, in bits:
`0` for the same length as the last used symbol; `10` and a bit, for one longer (0) or one shorter
(1); `110` and a run in Elias gamma, for that many unused symbols; `111` and four bits, the length
less one. The "last" length is 5 at the start. Bits are packed highest first, and the last byte is
padded with zeros.
"""

from collections.abc import Iterator
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import BitReader, ByteReader, varint
from nncfx.storage.codecs.table_limits import FIRST_LENGTH, LONGEST_CODE
from nncfx.storage.compiled import pays_off

LARGEST_ALPHABET = 1 << LONGEST_CODE

Lengths = NDArray[np.uint8]


def code_lengths(counts: NDArray[np.int64], limit: int = LONGEST_CODE) -> Lengths:
    """Return the code word length of each symbol, 0 for a symbol whose count is 0.

    The total, `sum(counts * lengths)`, is the minimum over all prefix codes with words of at most
    `limit` bits; it equals Huffman's if no word of Huffman's code is longer. A single distinct
    symbol has length 1. Ties are broken by symbol order, so equal counts give equal codes.

    Args:
        counts: How often each symbol occurs, at most 2**limit of them positive.
        limit: The longest word allowed, in bits.

    Source: Larmore and Hirschberg (1990), package-merge.

    >>> code_lengths(np.array([5, 0, 2, 1])).tolist()
    [1, 0, 2, 2]
    """
    used = np.flatnonzero(counts)
    lengths = np.zeros(counts.size, dtype=np.uint8)
    if used.size <= 1:
        lengths[used] = 1
        return lengths
    if pays_off(int(counts.sum())):
        from nncfx.storage.codecs import size_kernel  # with it comes numba

        return size_kernel.code_lengths(counts, limit)
    leaves = counts[used].astype(np.int64)
    order = np.argsort(leaves, kind="stable")
    # twice the count, plus 1 for a package, so leaves come first among equal items
    leaves = 2 * leaves[order]
    rows = [leaves]
    for _ in range(limit - 1):
        row = rows[-1] >> 1
        merged = np.concatenate([leaves, 2 * (row[:-1:2] + row[1::2]) + 1])
        merged.sort()
        rows.append(merged)
    # Take the cheapest items of each row; each package among them takes two of the row below.
    depth = np.zeros(leaves.size, dtype=np.uint8)
    taken = 2 * (leaves.size - 1)
    for row in reversed(rows):
        packages = int(np.count_nonzero(row[:taken] & 1))
        depth[: min(taken, row.size) - packages] += 1
        taken = 2 * packages
    lengths[used[order]] = depth
    return lengths


def canonical_codes(lengths: Lengths) -> NDArray[np.uint16]:
    """Return the canonical code word of each symbol, its bits in the low end.

    Words ascend with (length, symbol), starting at all zeros. Symbols of length 0 have word 0.

    >>> canonical_codes(np.array([1, 0, 2, 2], dtype=np.uint8)).tolist()
    [0, 0, 2, 3]
    """
    order, width = _canonical_order(lengths)
    share = 1 << (LONGEST_CODE - width)
    starts = np.cumsum(share) - share
    codes = np.zeros(lengths.size, dtype=np.uint16)
    codes[order] = starts >> (LONGEST_CODE - width)
    return codes


def _canonical_order(lengths: Lengths) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    order = np.argsort(lengths, kind="stable")
    order = order[np.count_nonzero(lengths == 0) :]
    return order, lengths[order].astype(np.int64)


def decoding_table(lengths: Lengths) -> tuple[NDArray[np.uint64], int]:
    """Return a table from the next `width` bits to `symbol << 8 | length`, and `width`.

    The code must be complete, which `unpack_lengths` ensures.
    """
    order, length = _canonical_order(lengths)
    width = int(length[-1])
    entries = order.astype(np.uint64) << np.uint64(8) | length.astype(np.uint64)
    return np.repeat(entries, 1 << (width - length)), width


def pack_lengths(lengths: Lengths) -> bytes:
    """Return the code table as bytes: the alphabet's size as varint, then the length changes."""
    if pays_off(0):
        from nncfx.storage.codecs import size_kernel  # with it comes numba

        return size_kernel.pack_lengths(lengths).tobytes()
    used = np.flatnonzero(lengths)
    size = int(used[-1]) + 1 if used.size else 0
    text = "".join(_changes(lengths[:size].tolist()))
    padded = text + "0" * (-len(text) % 8)
    return varint(size) + int("1" + padded, 2).to_bytes(len(padded) // 8 + 1, "big")[1:]


def _changes(lengths: list[int]) -> Iterator[str]:
    last = FIRST_LENGTH
    for length, group in groupby(lengths):
        count = sum(1 for _ in group)
        if length == 0:
            yield "110" + "0" * (count.bit_length() - 1) + f"{count:b}"
            continue
        if length == last:
            yield "0"
        elif abs(length - last) == 1:
            yield "100" if length > last else "101"
        else:
            yield f"111{length - 1:04b}"
        yield "0" * (count - 1)
        last = length


def unpack_lengths(source: ByteReader) -> Lengths:
    """Return the lengths that `pack_lengths` wrote; at least one symbol is used.

    At most 65,536 symbols are read, whatever the bytes say.

    Raises:
        StorageError: The table is truncated or not a complete prefix code.
    """
    return _complete(read_lengths(source))


def read_lengths(source: ByteReader) -> Lengths:
    """Return lengths from 0 to 16, the last of them not 0, without checking for a prefix code.

    Raises:
        StorageError: The list is truncated or invalid.
    """
    size = source.varint()
    if not 1 <= size <= LARGEST_ALPHABET:
        raise StorageError(f"The file is damaged: a code table of {size} symbols.")
    bits = BitReader(source)
    lengths: list[int] = []
    last = FIRST_LENGTH
    while len(lengths) < size:
        if bits.bit():
            if not bits.bit():
                last += -1 if bits.bit() else 1
            elif bits.bit():
                last = bits.bits(4) + 1
            else:
                lengths.extend([0] * min(bits.gamma(), size))
                continue
        if not 1 <= last <= LONGEST_CODE:
            raise StorageError(f"The file is damaged: a code word of {last} bits.")
        lengths.append(last)
    bits.align()
    if len(lengths) != size or not lengths[-1]:
        raise StorageError(f"The file is damaged: a code table does not have its {size} symbols.")
    return np.array(lengths, dtype=np.uint8)


def _complete(lengths: Lengths) -> Lengths:
    used = lengths[lengths > 0].astype(np.int64)
    share = int((1 << (LONGEST_CODE - used)).sum())
    sole = used.size == 1 and int(used[0]) == 1
    if not (sole or share == 1 << LONGEST_CODE):
        raise StorageError(
            "The file is damaged: a code table is not a complete prefix code (its words take "
            f"{share / (1 << LONGEST_CODE):.4f} of the code space, not 1)."
        )
    return lengths

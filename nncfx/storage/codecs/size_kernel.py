"""Compute tables of streams and their sizes by compiled loops, which avoid numpy's call overhead.

The functions return the same results as their namesakes in `frequency_table` and `prefix_code`.
"""

import math
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.storage.codecs.table_limits import COARSEST, FINEST, FIRST_LENGTH, LONGEST_CODE
from nncfx.storage.compiled import compiled

_LONGEST: Final[Any] = np.int64(LONGEST_CODE)
"""Not a literal, for which numba would compile everything again."""

Counts: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]
Lengths: TypeAlias = NDArray[np.uint8]


@compiled
def _bit_length(number: int) -> int:
    bits = 0
    while number >> bits:
        bits += 1
    return bits


@compiled
def _order(keys: NDArray[np.float64]) -> Counts:
    """Return `np.argsort(keys, kind="stable")`, which numba takes seconds to compile."""
    size = len(keys)
    order, merged = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    for place in range(size):
        order[place] = place
    width = 1
    while width < size:
        for start in range(0, size, 2 * width):
            middle, end = min(start + width, size), min(start + 2 * width, size)
            left, right = start, middle
            for place in range(start, end):
                if right >= end or (left < middle and keys[order[left]] <= keys[order[right]]):
                    merged[place] = order[left]
                    left += 1
                else:
                    merged[place] = order[right]
                    right += 1
        order, merged = merged, order
        width *= 2
    return order


@compiled
def _used(counts: Counts) -> Counts:
    """Return the symbols that occur."""
    kinds = 0
    for one in counts:
        kinds += one > 0
    used = np.empty(kinds, dtype=np.int64)
    kinds = 0
    for i in range(len(counts)):
        if counts[i]:
            used[kinds] = i
            kinds += 1
    return used


@compiled
def _scaled(counts: Counts, total: int, bits: int) -> Counts:
    """Return `frequency_table.scaled` for positive counts."""
    factor = (1 << bits) / total
    whole = np.empty(len(counts), dtype=np.int64)
    remainders = np.empty(len(counts), dtype=np.float64)
    missing = 1 << bits
    for i in range(len(counts)):
        exact = counts[i] * factor
        whole[i] = max(int(exact), 1)
        remainders[i] = whole[i] - exact
        missing -= whole[i]
    if missing > 0:
        order = _order(remainders)
        for place in range(missing):
            whole[order[place]] += 1
    while missing < 0:
        above = 0
        for i in range(len(whole)):
            remainders[i] = -whole[i]
            above += whole[i] > 1
        order = _order(remainders)
        for place in range(min(-missing, above)):
            whole[order[place]] -= 1
            missing += 1
    return whole


@compiled
def best_frequencies(counts: Counts) -> tuple[Counts, float]:
    """Return the frequencies and the bits of the symbols; 2 to 4,096 distinct symbols occur."""
    used = _used(counts)
    kept = np.empty(len(used), dtype=np.int64)
    total: Any = np.int64(0)  # as _LONGEST
    for i in range(len(used)):
        kept[i] = counts[used[i]]
        total += kept[i]
    best, fewest, cost = kept, np.inf, np.inf
    for bits in range(max(COARSEST, _bit_length(len(kept) - 1) + 1), FINEST + 1, 2):
        found = _scaled(kept, total, bits)
        symbols = below = 0.0
        for i in range(len(kept)):
            size = math.log2(found[i])
            symbols += kept[i] * (bits - size)
            below += size
        size = symbols + math.floor(2 * len(kept) + below)
        if size >= fewest:
            break
        best, fewest, cost = found, size, symbols
    frequencies = np.zeros(len(counts), dtype=np.int64)
    for i in range(len(used)):
        frequencies[used[i]] = best[i]
    return frequencies, cost


@compiled
def _by_count(counts: Counts) -> Counts:
    """Return the symbols that occur, rarest first."""
    used = _used(counts)
    keys = np.empty(len(used), dtype=np.float64)
    for i in range(len(used)):
        keys[i] = counts[used[i]]
    order = _order(keys)
    for i in range(len(used)):
        order[i] = used[order[i]]
    return order


@compiled
def _odd(numbers: Counts) -> int:
    odd = 0
    for one in numbers:
        odd += one & 1
    return odd


@compiled
def code_lengths(counts: Counts, limit: int) -> Lengths:
    """Return the lengths; at least two distinct symbols must occur."""
    order = _by_count(counts)
    leaves = len(order)
    rows = np.empty((limit, 2 * leaves), dtype=np.int64)
    sizes = np.zeros(limit, dtype=np.int64)
    for depth in range(limit):
        row, below = rows[depth], rows[depth - 1]
        packages = sizes[depth - 1] // 2 if depth else 0
        leaf = package = 0
        for place in range(leaves + packages):
            alone = both = np.int64(1) << 62
            if leaf < leaves:
                alone = 2 * counts[order[leaf]]
            if package < packages:
                both = 2 * ((below[2 * package] >> 1) + (below[2 * package + 1] >> 1)) + 1
            row[place] = min(alone, both)
            if alone < both:
                leaf += 1
            else:
                package += 1
        sizes[depth] = leaves + packages
    lengths = np.zeros(len(counts), dtype=np.uint8)
    taken = 2 * (leaves - 1)
    for depth in range(limit - 1, -1, -1):
        taken = min(taken, sizes[depth])
        packages = _odd(rows[depth, :taken])
        for leaf in range(taken - packages):
            lengths[order[leaf]] += 1
        taken = 2 * packages
    return lengths


@compiled
def _varint_size(number: int) -> int:
    return max(1, (_bit_length(number) + 6) // 7)


@compiled
def _write(out: Bytes, at: int, number: int, width: int) -> int:
    """Write `width` bits of `number`, highest first, from bit `at` on; return their end."""
    for place in range(width - 1, -1, -1):
        out[at >> 3] |= ((number >> place) & 1) << (7 - (at & 7))
        at += 1
    return at


@compiled
def _end(lengths: Lengths) -> int:
    """Return the index after the last positive length."""
    size = len(lengths)
    while size and not lengths[size - 1]:
        size -= 1
    return size


@compiled
def _write_lengths(out: Bytes, lengths: Lengths) -> int:
    """Write the result of `prefix_code.pack_lengths`; return the number of bytes written."""
    size = _end(lengths)
    byte, left = 0, size
    while left >> 7:
        out[byte] = 128 | (left & 127)
        left >>= 7
        byte += 1
    out[byte] = left
    at, last, before = 8 * (byte + 1), FIRST_LENGTH, -1
    for symbol in range(size):
        length = int(lengths[symbol])
        if not length:
            continue
        zeros = symbol - before - 1
        if zeros:
            at = _write(out, at, 6, 3)
            at = _write(out, at, zeros, 2 * _bit_length(zeros) - 1)
        if length == last:
            at += 1
        elif abs(length - last) == 1:
            at = _write(out, at, 4 if length > last else 5, 3)
        else:
            at = _write(out, at, 7 << 4 | (length - 1), 7)
        last, before = length, symbol
    return (at + 7) >> 3


@compiled
def pack_lengths(lengths: Lengths) -> Bytes:
    """Return the packed table of code words."""
    out = np.zeros(len(lengths) + 4, dtype=np.uint8)  # no change takes more than 7 bits
    return out[: _write_lengths(out, lengths)]


@compiled
def pack_frequencies(frequencies: Counts) -> Bytes:
    """Return the packed table of frequencies."""
    lengths = np.zeros(len(frequencies), dtype=np.uint8)
    for i in range(len(frequencies)):
        lengths[i] = _bit_length(frequencies[i])
    out = np.zeros(3 * len(frequencies) + 4, dtype=np.uint8)
    at = 8 * _write_lengths(out, lengths)
    for i in range(len(lengths)):
        if lengths[i]:
            at = _write(out, at, int(frequencies[i]), int(lengths[i]) - 1)
    return out[: (at + 7) >> 3]


@compiled
def ans_size(counts: Counts) -> float:
    """Return the bytes of table and symbols; 2 to 4,096 distinct symbols occur."""
    frequencies, cost = best_frequencies(counts)
    return len(pack_frequencies(frequencies)) + cost / 8


@compiled
def huffman_size(counts: Counts) -> int:
    """Return the bytes of table, bits and their number; at least two distinct symbols occur."""
    lengths = code_lengths(counts, _LONGEST)
    bits = 0
    for i in range(len(counts)):
        bits += int(counts[i]) * int(lengths[i])
    return len(pack_lengths(lengths)) + _varint_size(bits) + ((bits + 7) >> 3)

"""Read streams of symbols by compiled loops, which do not explain faults; see `tensor_kernel`.

Bytes are followed by `PADDING` zeros, so that no look-ahead leaves them; `end` is their end.
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.storage.codecs.huffman import BLOCK, INDEXED_ABOVE
from nncfx.storage.codecs.symbol_stream import ANS, HUFFMAN
from nncfx.storage.codecs.word_kernels import ans_step
from nncfx.storage.compiled import compiled

Bytes: TypeAlias = NDArray[np.uint8]
Symbols: TypeAlias = NDArray[np.uint16]
Cursor: TypeAlias = NDArray[np.int64]
"""An array with one number, the index of the next byte."""

PADDING: Final = 64

_LONGEST = 16
_LARGEST = 1 << 16
_FINEST = 1 << 14
_MOST_LANES = 1 << 12


@compiled
def next_varint(data: Bytes, end: int, at: Cursor) -> int:
    """Return the next LEB128 number below 2**42, or -1."""
    value, shift, byte = 0, 0, 0x80
    while byte >= 0x80:
        if at[0] >= end or shift > 35:
            return -1
        byte = int(data[at[0]])
        at[0] += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return -1 if byte == 0 and shift > 7 else value


@compiled
def _bits(data: Bytes, bit: int, count: int) -> int:
    """Return `count` bits, at most 16, from bit number `bit` on, highest first."""
    byte = bit >> 3
    window = (int(data[byte]) << 16) | (int(data[byte + 1]) << 8) | int(data[byte + 2])
    return (window >> (24 - count - (bit & 7))) & ((1 << count) - 1)


@compiled
def _lengths(data: Bytes, end: int, at: Cursor) -> Bytes:
    """Return the lengths of `prefix_code`; empty on a fault."""
    none = np.zeros(0, dtype=np.uint8)
    size = next_varint(data, end, at)
    if size < 1 or size > _LARGEST:
        return none
    lengths = np.zeros(size, dtype=np.uint8)
    bit, done, last = 8 * at[0], 0, 5
    while done < size:
        if bit >= 8 * end:
            return none
        lead = _bits(data, bit, 3)
        if lead < 4:  # 0: the same length
            bit += 1
        elif lead < 6:  # 10: one more or less
            bit += 3
            last += -1 if lead & 1 else 1
        elif lead == 7:  # 111: another length
            last = _bits(data, bit + 3, 4) + 1
            bit += 7
        else:  # 110: a run of unused symbols
            bit += 3
            zeros = 0
            while not _bits(data, bit, 1):
                bit += 1
                zeros += 1
                if zeros > _LONGEST:
                    return none
            done += (1 << zeros) | _bits(data, bit + 1, zeros)
            bit += 1 + zeros
            continue
        if last < 1 or last > _LONGEST:
            return none
        lengths[done] = last
        done += 1
    at[0] = (bit + 7) >> 3
    padded = not bit & 7 or not _bits(data, bit, 8 * int(at[0]) - bit)
    return lengths if done == size and lengths[size - 1] and at[0] <= end and padded else none


@compiled
def _read_fixed(data: Bytes, end: int, at: Cursor, width: int, out: Symbols) -> bool:
    low = next_varint(data, end, at)
    size = (len(out) * width + 7) >> 3
    if width > _LONGEST or low < 0 or size > end - at[0]:
        return False
    bit = 8 * at[0]
    at[0] += size
    largest = low
    for i in range(len(out)):
        symbol = low + _bits(data, bit, width)
        bit += width
        largest = max(largest, symbol)
        out[i] = symbol
    return largest < _LARGEST and not (bit & 7 and _bits(data, bit, 8 - (bit & 7)))


@compiled
def _huffman_table(lengths: Bytes) -> NDArray[np.uint32]:
    """Return symbol << 8 | length by the next bits; empty if the code is not complete."""
    share, widest = 0, 0
    for length in lengths:
        if length:
            share += 1 << (_LONGEST - int(length))
            widest = max(widest, int(length))
    if share != _LARGEST:
        return np.zeros(0, dtype=np.uint32)
    table = np.empty(1 << widest, dtype=np.uint32)
    place = 0
    for length in range(1, widest + 1):
        for symbol in range(len(lengths)):
            if lengths[symbol] == length:
                span = 1 << (widest - length)
                table[place : place + span] = (symbol << 8) | length
                place += span
    return table


@compiled
def _read_words(
    data: Bytes, bit: int, stop: int, widest: int, table: NDArray[np.uint32], out: Symbols
) -> int:
    """Fill `out` with the symbols of the code words from `bit` on; return their end.

    If a word would start at `stop` or later, reading ends early and the result exceeds `stop`.
    """
    together, unused = 57 // widest, np.uint64(64 - widest)
    for begin in range(0, len(out), together):
        if bit >= stop:
            return stop + 1
        held = np.uint64(0)
        for k in range(8):
            held |= np.uint64(data[(bit >> 3) + k]) << np.uint64(56 - 8 * k)
        held <<= np.uint64(bit & 7)
        # takes at most 57 bits; at least as many are held
        for i in range(begin, min(begin + together, len(out))):
            entry = table[held >> unused]
            out[i] = entry >> np.uint32(8)
            held <<= np.uint64(entry & np.uint32(0xFF))
            bit += int(entry & np.uint32(0xFF))
    return bit


@compiled
def _read_huffman(data: Bytes, end: int, at: Cursor, out: Symbols) -> bool:
    lengths = _lengths(data, end, at)
    total = next_varint(data, end, at) if len(lengths) else -1
    if total == 0:  # a single distinct symbol, the last of the table
        out[:] = len(lengths) - 1
        return int(lengths[-1]) == 1 and np.count_nonzero(lengths) == 1
    table = _huffman_table(lengths)
    blocks = len(out) // BLOCK if len(out) > INDEXED_ABOVE else 0
    index, size = at[0], (total + 7) >> 3
    if not len(table) or total < len(out) or 2 * blocks + size > end - index:
        return False
    at[0] += 2 * blocks
    bit, widest = 8 * at[0], 0
    while 1 << widest < len(table):
        widest += 1
    stop = bit + total
    for begin in range(0, len(out), BLOCK):
        block = bit
        bit = _read_words(data, bit, stop, widest, table, out[begin : begin + BLOCK])
        if begin + BLOCK <= len(out) and index < at[0]:
            if bit - block != int(data[index]) | (int(data[index + 1]) << 8):
                return False
            index += 2
    at[0] += size
    return bit == stop and not (bit & 7 and _bits(data, bit, 8 - (bit & 7)))


@compiled
def _slots(data: Bytes, end: int, at: Cursor) -> NDArray[np.uint64]:
    """Return symbol, frequency and offset by slot, in 16, 16 and 32 bits; empty on a fault."""
    none = np.zeros(0, dtype=np.uint64)
    lengths = _lengths(data, end, at)
    frequencies = np.zeros(len(lengths), dtype=np.int64)
    bit, total, used = 8 * at[0], 0, 0
    for symbol in range(len(lengths)):
        below = int(lengths[symbol]) - 1
        if below >= 0:
            if bit > 8 * end:
                return none
            frequencies[symbol] = (1 << below) | _bits(data, bit, below)
            bit += below
            total += int(frequencies[symbol])
            used += 1
    at[0] = (bit + 7) >> 3
    if at[0] > end or used < 2 or total > _FINEST or total & (total - 1):
        return none
    if bit & 7 and _bits(data, bit, 8 - (bit & 7)):
        return none
    table = np.empty(total, dtype=np.uint64)
    place = 0
    for symbol in range(len(lengths)):
        for offset in range(frequencies[symbol]):
            table[place] = (symbol << 48) | (int(frequencies[symbol]) << 32) | offset
            place += 1
    return table


@compiled
def _read_ans(data: Bytes, end: int, at: Cursor, out: Symbols) -> bool:
    table = _slots(data, end, at)
    if not len(table):
        return False
    lanes, words = next_varint(data, end, at), next_varint(data, end, at)
    if lanes < 1 or lanes > min(_MOST_LANES, len(out)) or words < 0 or words > len(out):
        return False
    first = at[0] + 4 * lanes
    if first + 2 * words > end:
        return False
    lowest = np.uint64(1 << 16)
    states = np.empty(lanes, dtype=np.uint64)
    for lane in range(lanes):
        begin = at[0] + 4 * lane
        state = int(data[begin]) | (int(data[begin + 1]) << 8) | (int(data[begin + 2]) << 16)
        states[lane] = np.uint64(state | (int(data[begin + 3]) << 24))
        if states[lane] < lowest:
            return False
    held = np.zeros(words + 1, dtype=np.uint16)
    for i in range(words):
        held[i] = int(data[first + 2 * i]) | (int(data[first + 2 * i + 1]) << 8)
    bits = np.uint64(0)
    while (1 << int(bits)) < len(table):
        bits += np.uint64(1)
    taken = ans_step(states, held, table, bits, out)
    at[0] = first + 2 * words
    done = taken == words
    for lane in range(lanes):
        done = done and states[lane] == lowest
    return done


@compiled
def read_symbols(data: Bytes, end: int, at: Cursor, out: Symbols) -> bool:
    """Fill `out` with the next stream of symbols; return whether it was valid."""
    if not len(out):
        return True
    if at[0] >= end:
        return False
    kind = int(data[at[0]])
    at[0] += 1
    if kind == HUFFMAN:
        return _read_huffman(data, end, at, out)
    if kind == ANS:
        return _read_ans(data, end, at, out)
    return _read_fixed(data, end, at, kind, out)

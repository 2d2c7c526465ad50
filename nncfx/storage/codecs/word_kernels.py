"""Loops over symbols and words that numba makes several times faster than numpy."""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.storage.compiled import compiled

_CELLS: Final = 8
"""A number of cells that fills whole bytes, whatever their width."""

_TOGETHER: Final = 1 << 10
"""Words that are joined at a time, so that their parts stay in the first-level cache."""

Cells: TypeAlias = NDArray[np.uint64]
Words: TypeAlias = NDArray[np.unsignedinteger[Any]]
High: TypeAlias = tuple[Cells, NDArray[np.uint16], Cells, np.uint64]
Low: TypeAlias = tuple[NDArray[np.uint8], int, int]


@compiled
def ans_step(
    states: Cells,
    words: NDArray[np.uint16],
    table: Cells,
    bits: np.uint64,
    out: NDArray[np.uint16],
) -> int:
    """Let the lanes read the symbols of `out` in turn; return how many words they took.

    Args:
        states: The states of the lanes; changed in place.
        words: At least one; a lane without words left takes the last one again.
        table: By slot: the symbol, the frequency, the offset in 16, 16 and 32 bits.
        bits: There are 2**bits slots.
        out: Receives the symbols.
    """
    mask, half, word, high = np.uint64(len(table) - 1), np.uint64(32), np.uint64(16), np.uint64(48)
    low_word, low_half, lowest = np.uint64(0xFFFF), np.uint64(0xFFFFFFFF), np.uint64(1 << 16)
    lanes, last = len(states), np.uint64(len(words) - 1)
    at = np.uint64(0)
    for begin in range(0, len(out), lanes):
        row = out[begin : begin + lanes]
        # if a row cannot reach the end of the words, no index needs a check
        ahead = np.uint64(len(row)) + at <= last
        for place in range(len(row)):
            lane = np.uint64(place)  # unsigned: a signed index would be checked for its sign
            x = states[lane]
            entry = table[x & mask]
            row[lane] = entry >> high
            x = ((entry >> half) & low_word) * (x >> bits) + (entry & low_half)
            is_low = x < lowest
            # read the word in any case, because a branch would be mispredicted
            next_word = words[at] if ahead else words[min(at, last)]
            x = (x << word) | np.uint64(next_word) if is_low else x
            at += np.uint64(is_low)
            states[lane] = x
    return int(at)


@compiled
def ans_write(
    symbols: Words,
    frequency: Cells,
    start: Cells,
    bits: np.uint64,
    states: Cells,
    words: NDArray[np.uint16],
) -> int:
    """Let the lanes encode `symbols`, the last first; return the start of the result in `words`.

    Args:
        symbols: The symbols that `ans_step` will read.
        frequency: By symbol; they add up to 2**bits.
        start: The first slot by symbol.
        bits: There are 2**bits slots.
        states: The states of the lanes; changed in place.
        words: Room for as many words as symbols; filled from the end.
    """
    word, room = np.uint64(16), np.uint64(32) - bits
    lanes, at = len(states), len(words)
    for back in range(len(symbols)):
        i = len(symbols) - 1 - back
        x, f = states[i % lanes], frequency[symbols[i]]
        if x >= f << room:
            at -= 1
            words[at] = x
            x >>= word
        quotient = x // f
        states[i % lanes] = (quotient << bits) + (x - quotient * f) + start[symbols[i]]
    return at


@compiled
def huffman_write(
    symbols: Words,
    lengths: NDArray[np.uint8],
    codes: NDArray[np.uint16],
    size: int,
    blocks: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Write the code words of `symbols`, the highest bit of each byte first.

    Args:
        symbols: The symbols to write.
        lengths: The bits of the code word by symbol.
        codes: The code word by symbol.
        size: Symbols of a block; the last block can have fewer.
        blocks: Receives the number of bits of each block.
        out: Room for all bits.
    """
    held, bits, at = np.uint64(0), np.uint64(0), 0
    for block in range(len(blocks)):
        total = 0
        for i in range(block * size, min(len(symbols), (block + 1) * size)):
            length = np.uint64(lengths[symbols[i]])
            held = (held << length) | np.uint64(codes[symbols[i]])
            bits += length
            total += int(length)
            while bits >= np.uint64(8):
                bits -= np.uint64(8)
                out[at] = held >> bits
                at += 1
        blocks[block] = total
    if bits:
        out[at] = held << (np.uint64(8) - bits)


@compiled
def unpack_cells(raw: NDArray[np.uint8], first: int, width: int, out: NDArray[np.uint16]) -> None:
    """Fill `out` with cells of `width` bits, at most 8, from number `first` on, highest first."""
    last = len(raw) - 1
    mask, size, top = np.uint64((1 << width) - 1), np.uint64(width), np.uint64(64 - width)
    i, end = 0, len(out)
    while i < end:
        bit = (first + i) * width
        byte = bit >> 3
        if bit & 7 or end - i < _CELLS or byte + 7 > last:
            both = (int(raw[byte]) << 8) | int(raw[min(byte + 1, last)])
            out[i] = (both >> (16 - width - (bit & 7))) & ((1 << width) - 1)
            i += 1
            continue
        # eight cells at a time, with unsigned indices, which are not checked for their sign
        place, cell, window = np.uint64(byte), np.uint64(i), np.uint64(0)
        for k in range(8):
            window |= np.uint64(raw[place + np.uint64(k)]) << np.uint64(56 - 8 * k)
        for k in range(_CELLS):
            out[cell + np.uint64(k)] = window >> (top - size * np.uint64(k)) & mask
        i += _CELLS


@compiled
def join_words(top: NDArray[np.uint16], low: NDArray[np.uint16], cut: int) -> int:
    """Join `top` and `low` to words, written into `top`; return the largest of `top`.

    A word was rotated left by a bit, so that its sign comes last, and cut `cut` bits from its end.
    """
    shift, largest = np.uint16(cut), np.uint16(0)
    for i in range(len(top)):
        largest = max(largest, top[i])
        turned = np.uint16(np.uint16(top[i] << shift) | low[i])
        top[i] = np.uint16(turned >> np.uint16(1)) | np.uint16(turned << np.uint16(15))
    return int(largest)


@compiled
def read_split(high: High, low: Low, out: NDArray[np.uint16]) -> tuple[int, int]:
    """Fill `out` with words whose parts are read together.

    Args:
        high: The first four arguments of `ans_step`, to read the high parts.
        low: The low parts: their bytes, the number of the next one, and their bits, at most 8.
        out: Receives the words.

    Returns:
        The number of words that the lanes took, and the largest high part.
    """
    states, words, table, bits = high
    raw, first, cut = low
    lanes, used, largest = len(states), 0, 0
    size = max(1, _TOGETHER // lanes) * lanes
    cells = np.empty(min(size, len(out)), dtype=np.uint16)
    for begin in range(0, len(out), size):
        some = out[begin : begin + size]
        used += ans_step(states, words[min(used, len(words) - 1) :], table, bits, some)
        unpack_cells(raw, first + begin, cut, cells[: len(some)])
        largest = max(largest, join_words(some, cells, cut))
    return used, largest

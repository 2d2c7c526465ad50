"""Scale counts to frequencies for range coding, and pack the table of frequencies.

A table is the bit length of each symbol's frequency, packed like a code table (see `prefix_code`),
then, in symbol order, the bits of each frequency below its highest bit, highest first; both parts
are padded with zeros to a byte.
"""

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import BitReader, ByteReader
from nncfx.storage.codecs.prefix_code import pack_lengths, read_lengths
from nncfx.storage.codecs.table_limits import COARSEST, FINEST
from nncfx.storage.compiled import pays_off

LARGEST_ALPHABET = 1 << (FINEST - 2)
"""The most symbols that can occur."""

Counts = NDArray[np.int64]


def scaled(counts: Counts, bits: int) -> Counts:
    """Return frequencies near `counts` that add up to 2**bits, at least 1 where a symbol occurs.

    The largest remainders are rounded up; ties go to the first.

    Args:
        counts: How often each symbol occurs, at most 2**bits of them positive.
        bits: In [0, 14].

    >>> scaled(np.array([5, 0, 2, 1]), 2).tolist()
    [2, 0, 1, 1]
    """
    exact = counts * ((1 << bits) / int(counts.sum()))
    whole = np.where(counts > 0, np.maximum(exact.astype(np.int64), 1), 0)
    missing = (1 << bits) - int(whole.sum())
    if missing > 0:
        remainders = np.where(counts > 0, exact - whole, -np.inf)
        whole[np.argsort(-remainders, kind="stable")[:missing]] += 1
    while missing < 0:
        order = np.argsort(-whole, kind="stable")[: min(-missing, np.count_nonzero(whole > 1))]
        whole[order] -= 1
        missing += order.size
    return whole


def cost_bits(counts: Counts, frequencies: Counts) -> float:
    """Return the bits that symbols of `counts` take under `frequencies`, without the table."""
    used = counts > 0
    shares = frequencies[used] / int(frequencies.sum())
    return float(-(counts[used] * np.log2(shares)).sum())


def best_frequencies(counts: Counts) -> Counts:
    """Return the frequencies that minimize the total size of table and symbols of `counts`.

    Between 2 and 4,096 of the counts must be positive.
    """
    if pays_off(int(counts.sum())):
        from nncfx.storage.codecs import size_kernel  # with it comes numba

        return size_kernel.best_frequencies(counts)[0]
    least = max(COARSEST, int(np.count_nonzero(counts) - 1).bit_length() + 1)
    best, fewest = counts, np.inf
    for bits in range(least, FINEST + 1, 2):
        found = scaled(counts, bits)
        table = 2 * np.count_nonzero(found) + np.log2(np.maximum(found, 1)).sum()
        size = cost_bits(counts, found) + int(table)
        if size >= fewest:
            break  # finer frequencies no longer save more than their tables cost
        best, fewest = found, size
    return best


def pack_frequencies(frequencies: Counts) -> bytes:
    """Return the table of `frequencies` as bytes."""
    if pays_off(0):
        from nncfx.storage.codecs import size_kernel  # with it comes numba

        return size_kernel.pack_frequencies(frequencies).tobytes()
    used = frequencies[frequencies > 0].tolist()
    text = "".join(f"{one:b}"[1:] for one in used)
    padded = text + "0" * (-len(text) % 8)
    rest = int("1" + padded, 2).to_bytes(len(padded) // 8 + 1, "big")[1:]
    return pack_lengths(_bit_lengths(frequencies)) + rest


def _bit_lengths(frequencies: Counts) -> NDArray[np.uint8]:
    return np.where(frequencies > 0, np.frexp(frequencies.astype(np.float64))[1], 0).astype("u1")


def unpack_frequencies(source: ByteReader) -> Counts:
    """Return the frequencies that `pack_frequencies` wrote; their sum is a power of two.

    At most 65,536 symbols are read, whatever the bytes say.

    Raises:
        StorageError: The table is truncated, its sum is not a power of two up to 2**14, or fewer
            than two symbols have a frequency.
    """
    lengths = read_lengths(source)
    bits = BitReader(source)
    frequencies = np.zeros(lengths.size, dtype=np.int64)
    for symbol in np.flatnonzero(lengths).tolist():
        below = int(lengths[symbol]) - 1
        frequencies[symbol] = 1 << below | bits.bits(below)
    bits.align()
    total = int(frequencies.sum())
    if total > 1 << FINEST or total & (total - 1) or np.count_nonzero(frequencies) < 2:  # noqa: PLR2004 (a sole symbol takes no bits)
        raise StorageError(f"The file is damaged: a table of frequencies adds up to {total}.")
    return frequencies

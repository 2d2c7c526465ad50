"""Encode and decode range ANS streams of 16-bit symbols in interleaved lanes, by numpy.

A stream is the table of frequencies, the number n of lanes and the number of words as varints,
the n states as uint32, then the words as uint16. Symbol i belongs to lane i % n. To read a symbol,
a lane with the state x takes the slot `x % 2**R` (frequencies add up to 2**R), finds the symbol
whose slots `start .. start + f - 1` include it, and continues with the state
`f * (x >> R) + slot - start`; a state below 2**16 is multiplied by 2**16, and the next word is
added. Lanes take turns, in order. At the end every state is 2**16 again and no word is left.

Source: Duda (2013), Asymmetric numeral systems; Giesen (2014), Interleaved entropy coders.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader, varint
from nncfx.storage.codecs.frequency_table import (
    LARGEST_ALPHABET,
    best_frequencies,
    cost_bits,
    pack_frequencies,
    scaled,
    unpack_frequencies,
)
from nncfx.storage.compiled import pays_off

Symbols: TypeAlias = NDArray[np.unsignedinteger[Any]]
Cells: TypeAlias = NDArray[np.uint64]
Words: TypeAlias = NDArray[np.uint16]

MOST_LANES = 1 << 12
_LOWEST = np.uint64(1 << 16)
_WORD = np.uint64(16)
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_BATCH = 1 << 17
_CACHED_BITS = 12  # slots of 8 bytes in first-level cache; 0.05 % larger than 14 on bfloat16
_LOST_PER_LANE = 3  # bytes: a state starts with 16 unused bits and ends with 24 bits stored in 32


def lanes_of(count: int) -> int:
    """Return the number of lanes for `count` symbols, a compromise between speed and size."""
    return max(1, min(count >> 10, max(1 << 10, count >> 12), MOST_LANES))


def estimated_size(counts: NDArray[np.int64]) -> float:
    """Return the approximate size in bytes of a stream of symbols that occur `counts` times.

    Infinity if there are too few or too many distinct symbols for this coder.
    """
    if not 2 <= np.count_nonzero(counts) <= LARGEST_ALPHABET:  # noqa: PLR2004 (a choice)
        return float("inf")
    lanes = _LOST_PER_LANE * lanes_of(int(counts.sum()))
    if pays_off(int(counts.sum())):
        from nncfx.storage.codecs import size_kernel  # with it comes numba

        return 4 + lanes + size_kernel.ans_size(counts)
    frequencies = best_frequencies(counts)
    table = len(pack_frequencies(frequencies))
    return 4 + table + lanes + cost_bits(counts, frequencies) / 8


def encode(symbols: Symbols, counts: NDArray[np.int64], lanes: int | None = None) -> bytes:
    """Return `symbols`, 1-D, which occur `counts` times, as one stream.

    Args:
        symbols: Of 2 to 4,096 distinct values.
        counts: How often each symbol occurs, up to the largest symbol.
        lanes: The number of lanes, at most 4,096, for loops that read the slots from the
            processor's first-level cache; by default enough for numpy to be fast.
    """
    frequencies = best_frequencies(counts)
    if lanes and int(frequencies.sum()).bit_length() > _CACHED_BITS + 1:
        few = int(np.count_nonzero(counts)) <= 1 << (_CACHED_BITS - 2)
        frequencies = scaled(counts, _CACHED_BITS) if few else frequencies
    lanes = lanes or lanes_of(symbols.size)
    states, words = _encode_words(symbols, frequencies, lanes)
    head = pack_frequencies(frequencies) + varint(lanes) + varint(words.size)
    return b"".join([head, states.astype("<u4").tobytes(), words.astype("<u2").tobytes()])


def _encode_words(
    symbols: Symbols, frequencies: NDArray[np.int64], lanes: int
) -> tuple[Cells, NDArray[np.uint16]]:
    bits = np.uint64(int(frequencies.sum()).bit_length() - 1)
    frequency = frequencies.astype(np.uint64)
    start = np.cumsum(frequency) - frequency
    state = np.full(lanes, _LOWEST)
    if pays_off(symbols.size):
        from nncfx.storage.codecs.word_kernels import ans_write  # with it comes numba

        words = np.empty(symbols.size, dtype=np.uint16)
        return state, words[ans_write(symbols, frequency, start, bits, state, words) :]
    step_up = (np.uint64(1) << bits) - frequency
    parts = [np.zeros(0, dtype=np.uint16)]
    # Written backward, from the last symbol to the first, so a decoder reads forward.
    for begin in reversed(range(0, symbols.size, lanes)):
        row = symbols[begin : begin + lanes]
        x = state[: row.size]
        f = frequency.take(row)
        full = (x >= f << (_HALF - bits)).nonzero()[0]
        spilling = x[full]
        parts.append(spilling.astype(np.uint16))
        x[full] = spilling >> _WORD
        # exact in float64: states have 32 bits and frequencies 14
        quotient = (x / f).astype(np.uint64)
        x += quotient * step_up.take(row) + start.take(row)
    parts.reverse()
    return state, np.concatenate(parts)


class AnsReader:
    """Reads the symbols of a stream in order, some at a time.

    Allocates at most 4 MiB and the table, in addition to the result.
    """

    def __init__(self, source: ByteReader, count: int) -> None:
        """Take a whole stream of `count` symbols, at least one, from `source`.

        Raises:
            StorageError: The stream is truncated, or its parts contradict each other.
        """
        frequencies = unpack_frequencies(source)
        lanes, words = source.varint(), source.varint()
        _check(1 <= lanes <= min(MOST_LANES, count) and words <= count)
        self._bits = np.uint64(int(frequencies.sum()).bit_length() - 1)
        self._symbol = np.repeat(np.arange(frequencies.size, dtype=np.uint16), frequencies)
        start = (np.cumsum(frequencies) - frequencies)[self._symbol]
        offset = np.arange(self._symbol.size) - start
        self._table = (frequencies[self._symbol] << 32 | offset).astype(np.uint64)
        self._is_long = pays_off(count)
        self._packed = self._table + (self._symbol.astype(np.uint64) << np.uint64(48))
        self._state = np.frombuffer(source.take(4 * lanes), dtype="<u4").astype(np.uint64)
        _check(bool((self._state >= _LOWEST).all()))
        self._words = np.frombuffer(source.take(2 * words), dtype="<u2")
        self._left = count

    @property
    def is_compiled(self) -> bool:
        """Return whether `read_split` can be called."""
        return self._is_long

    def read(self, count: int) -> NDArray[np.uint16]:
        """Return the next `count` symbols.

        Raises:
            StorageError: The stream contradicts its announced lengths.
        """
        _check(count <= self._left)
        out = np.empty(count, dtype=np.uint16)
        if self._is_long:
            from nncfx.storage.codecs.word_kernels import ans_step  # with it comes numba

            self._took(ans_step(self._state, self._some_words(), self._packed, self._bits, out))
        else:
            batch = max(1, _BATCH // self._state.size) * self._state.size
            for begin in range(0, count, batch):
                self._numpy_batch(out[begin : begin + batch])
        self._passed(count)
        return out

    def read_split(self, raw: NDArray[np.uint8], first: int, cut: int, out: Words) -> int:
        """Fill `out` with words whose high parts are the next symbols.

        The low parts are in `raw`, from number `first` on, packed by `pack_bits` with `cut` bits,
        in [1, 8].

        Returns:
            The largest of the symbols.

        Raises:
            StorageError: The stream contradicts its announced lengths.
        """
        from nncfx.storage.codecs import word_kernels  # with it comes numba

        _check(out.size <= self._left)
        high = (self._state, self._some_words(), self._packed, self._bits)
        used, largest = word_kernels.read_split(high, (raw, first, cut), out)
        self._took(used)
        self._passed(out.size)
        return largest

    def _some_words(self) -> NDArray[np.uint16]:
        return self._words if self._words.size else np.zeros(1, dtype=np.uint16)

    def _took(self, used: int) -> None:
        _check(used <= self._words.size)
        self._words = self._words[used:]

    def _passed(self, count: int) -> None:
        """Rotate the states so that the next lane is the first; check the end."""
        self._state = np.roll(self._state, -(count % self._state.size))
        self._left -= count
        if not self._left:
            _check(not self._words.size and bool((self._state == _LOWEST).all()))

    def _numpy_batch(self, symbols: NDArray[np.uint16]) -> None:
        slots = np.empty(symbols.size, dtype=np.uint64)
        for begin in range(0, symbols.size, self._state.size):
            self._step(slots[begin : begin + self._state.size])
        self._symbol.take(slots.view(np.int64), out=symbols)

    def _step(self, slot: Cells) -> None:
        """Let each lane read one symbol, and write its slot."""
        x = self._state[: slot.size]
        np.bitwise_and(x, np.uint64(self._symbol.size - 1), out=slot)
        entry = self._table.take(slot.view(np.int64))
        np.right_shift(x, self._bits, out=x)
        x *= entry >> _HALF
        x += entry & _LOW_HALF
        low = (x < _LOWEST).nonzero()[0]
        _check(low.size <= self._words.size)
        x[low] = x[low] << _WORD | self._words[: low.size]
        self._words = self._words[low.size :]


def _check(holds: bool) -> None:
    if not holds:
        raise StorageError("The file is damaged: an ANS stream contradicts its own lengths.")

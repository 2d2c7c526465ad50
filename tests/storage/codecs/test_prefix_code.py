"""Code lengths are optimal, codes are prefix codes, tables survive and are not trusted."""

import heapq
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.codecs.prefix_code import (
    canonical_codes,
    code_lengths,
    pack_lengths,
    unpack_lengths,
)

COUNTS = st.lists(st.integers(0, 1000), min_size=1, max_size=300)


def huffman_total(counts: list[int]) -> int:
    """Return the bits of Huffman's code, by his own algorithm: the sum of all merges."""
    heap = [count for count in counts if count]
    heapq.heapify(heap)
    total = 0
    while len(heap) > 1:
        merged = heapq.heappop(heap) + heapq.heappop(heap)
        total += merged
        heapq.heappush(heap, merged)
    return total


@given(COUNTS)
def test_the_total_is_huffmans(counts: list[int]) -> None:
    lengths = code_lengths(np.array(counts))
    if np.count_nonzero(counts) > 1:
        assert int((lengths * np.array(counts)).sum()) == huffman_total(counts)


@pytest.mark.parametrize("size", [2, 3, 255, 256, 257, 4096, 65536])
def test_equal_counts_of_any_alphabet_take_huffmans_total(size: int) -> None:
    counts = np.ones(size, dtype=np.int64)
    lengths = code_lengths(counts)
    assert int(lengths.sum()) == huffman_total([1] * size)
    assert int(lengths.max()) <= 16


def test_a_limit_that_binds_is_kept_at_the_least_total() -> None:
    counts = np.array([1, 1, 2, 3, 5, 8])  # Huffman's longest word has 5 bits
    lengths = code_lengths(counts, 3)
    best = min(
        sum(c * n for c, n in zip(counts.tolist(), choice, strict=True))
        for choice in product(range(1, 4), repeat=6)
        if sum(2.0**-n for n in choice) <= 1
    )
    assert int(lengths.max()) == 3
    assert int((counts * lengths).sum()) == best


def test_fibonacci_counts_are_limited_to_sixteen_bits() -> None:
    counts = [1, 1]
    while len(counts) < 30:
        counts.append(counts[-1] + counts[-2])
    lengths = code_lengths(np.array(counts)).astype(int)
    assert lengths.max() == 16
    assert (2.0**-lengths).sum() == 1.0


def test_a_sole_symbol_has_length_one() -> None:
    assert code_lengths(np.array([0, 0, 9])).tolist() == [0, 0, 1]


@given(COUNTS)
def test_no_code_word_begins_another(counts: list[int]) -> None:
    lengths = code_lengths(np.array(counts))
    codes = canonical_codes(lengths)
    words = sorted(
        f"{code:0{length}b}"
        for code, length in zip(codes.tolist(), lengths.tolist(), strict=True)
        if length
    )
    assert not any(b.startswith(a) for a, b in pairwise(words))


@given(COUNTS.filter(any))
def test_a_table_reads_back(counts: list[int]) -> None:
    lengths = np.trim_zeros(code_lengths(np.array(counts)), "b")
    source = ByteReader(pack_lengths(lengths))
    np.testing.assert_array_equal(unpack_lengths(source), lengths)
    source.finish()


def test_a_table_by_hand() -> None:
    """3 lengths from 5 on: the same (0), one more (100), the same (0), filled up with zeros."""
    assert pack_lengths(np.array([5, 6, 6], dtype=np.uint8)) == bytes([3, 0b01000000])
    assert pack_lengths(np.array([4, 4, 5], dtype=np.uint8)) == bytes([3, 0b10101000])


def test_a_smooth_table_takes_less_than_two_bits_per_symbol() -> None:
    counts = (1e6 * 0.8 ** np.arange(32)).astype(np.int64)
    assert len(pack_lengths(code_lengths(counts))) <= 9


@pytest.mark.parametrize(
    ("bits", "why"),
    [
        ("111" + "0000" + "0" + "0", "three words of one bit: over-subscribed"),
        ("111" + "0001" + "0" + "0", "three words of two bits: incomplete"),
        ("110" + "00101" + "0", "five unused symbols of three: no word at all"),
        ("111" + "0000" + "110" + "010", "the last symbol is unused"),
        ("111" + "0000" + "101" + "0", "a length below one"),
    ],
)
def test_a_table_that_is_no_complete_prefix_code_is_refused(bits: str, why: str) -> None:
    padded = bits + "0" * (-len(bits) % 8)
    data = b"\x03" + int(padded, 2).to_bytes(len(padded) // 8, "big")
    with pytest.raises(StorageError, match=r"prefix code|code word|code table"):
        pytest.fail(f"read {unpack_lengths(ByteReader(data))}: {why}")


def test_an_alphabet_beyond_sixteen_bits_is_refused_unread() -> None:
    with pytest.raises(StorageError, match="65537 symbols"):
        unpack_lengths(ByteReader(b"\x81\x80\x04"))


@given(st.binary(max_size=40))
def test_any_bytes_give_a_table_or_our_error(data: bytes) -> None:
    try:
        lengths = unpack_lengths(ByteReader(data)).astype(int)
    except StorageError:
        return
    assert (2.0 ** -lengths[lengths > 0]).sum() in {0.5, 1.0}


@pytest.mark.parametrize(("bits", "length"), [("1110000101", 0), ("1111111100", 17)])
def test_a_code_word_of_no_bits_or_too_many_is_refused(bits: str, length: int) -> None:
    """One symbol of 1 bit and one of a bit less; one of 16 bits and one of a bit more."""
    data = bytes([2]) + int(bits.ljust(16, "0"), 2).to_bytes(2, "big")
    with pytest.raises(StorageError, match=f"a code word of {length} bits"):
        unpack_lengths(ByteReader(data))

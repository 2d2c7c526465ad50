"""Frequencies: near the counts, adding up to a power of two, and bytes that refuse nonsense."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.codecs.frequency_table import (
    LARGEST_ALPHABET,
    best_frequencies,
    cost_bits,
    pack_frequencies,
    scaled,
    unpack_frequencies,
)

COUNTS = (
    st.lists(st.one_of(st.just(0), st.integers(1, 10**9)), min_size=2, max_size=64)
    .map(lambda counts: np.array(counts, dtype=np.int64))
    .filter(lambda counts: np.count_nonzero(counts) > 1)
)


@settings(deadline=None)
@given(COUNTS, st.integers(6, 14))
def test_frequencies_add_up_and_no_symbol_is_lost(counts: np.ndarray, bits: int) -> None:
    frequencies = scaled(counts, bits)
    assert frequencies.sum() == 1 << bits
    np.testing.assert_array_equal(frequencies > 0, counts > 0)


def test_counts_that_fit_stay() -> None:
    counts = np.array([1, 0, 32, 31], dtype=np.int64)
    np.testing.assert_array_equal(scaled(counts, 6), counts)


def test_rare_symbols_take_from_the_most_frequent() -> None:
    counts = np.array([10**9, *[1] * 40], dtype=np.int64)
    assert scaled(counts, 6).tolist() == [24, *[1] * 40]


@settings(deadline=None)
@given(COUNTS)
def test_a_table_comes_back(counts: np.ndarray) -> None:
    frequencies = best_frequencies(counts)
    source = ByteReader(pack_frequencies(frequencies))
    again = unpack_frequencies(source)
    source.finish()
    np.testing.assert_array_equal(again, frequencies[: again.size])
    assert not frequencies[again.size :].any()


def test_the_largest_alphabet_comes_back() -> None:
    counts = np.arange(1, LARGEST_ALPHABET + 1)
    frequencies = best_frequencies(counts)
    again = unpack_frequencies(ByteReader(pack_frequencies(frequencies)))
    np.testing.assert_array_equal(again, frequencies)


@settings(deadline=None)
@given(COUNTS)
def test_the_cost_is_never_below_the_entropy(counts: np.ndarray) -> None:
    used = counts[counts > 0]
    entropy = -(used * np.log2(used / used.sum())).sum()
    assert cost_bits(counts, best_frequencies(counts)) >= entropy * (1 - 1e-9)


def test_many_symbols_are_worth_a_fine_table() -> None:
    counts = np.random.default_rng(0).integers(1, 10**6, 100)
    entropy = -(counts * np.log2(counts / counts.sum())).sum()
    assert cost_bits(counts, best_frequencies(counts)) < 1.0001 * entropy


@pytest.mark.parametrize(
    "frequencies",
    [[64], [1, 2], [2**13, 2**13, 2**14], [3, 0, 4]],
    ids=["one symbol", "3", "too fine", "7"],
)
def test_what_is_no_table_is_refused(frequencies: list[int]) -> None:
    data = pack_frequencies(np.array(frequencies, dtype=np.int64))
    with pytest.raises(StorageError, match="table of frequencies adds up to"):
        unpack_frequencies(ByteReader(data))


def test_a_table_that_is_cut_off_is_refused() -> None:
    data = pack_frequencies(np.array([40, 20, 4], dtype=np.int64))
    for size in range(len(data)):
        with pytest.raises(StorageError):
            unpack_frequencies(ByteReader(data[:size]))

"""ANS streams: every symbol comes back, in about the entropy, and damage is refused."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nncfx.errors import StorageError
from nncfx.storage.codecs import ans
from nncfx.storage.codecs.byte_reader import ByteReader, varint
from nncfx.storage.codecs.frequency_table import pack_frequencies
from nncfx.storage.codecs.huffman import count_symbols

SYMBOLS = (
    st.lists(st.integers(0, 4000), min_size=2, max_size=300)
    .map(lambda symbols: np.array(symbols, dtype=np.uint16))
    .filter(lambda symbols: len(set(symbols.tolist())) > 1)
)


def gaps(count: int) -> np.ndarray:
    drawn = np.random.default_rng(0).geometric(0.1, count) - 1
    return np.minimum(drawn, 63).astype(np.uint16)


def decoded(data: bytes, count: int) -> np.ndarray:
    source = ByteReader(data)
    symbols = ans.AnsReader(source, count).read(count)
    source.finish()
    return symbols


@settings(deadline=None)
@given(SYMBOLS)
def test_symbols_come_back(symbols: np.ndarray) -> None:
    data = ans.encode(symbols, count_symbols(symbols))
    np.testing.assert_array_equal(decoded(data, symbols.size), symbols)


@pytest.mark.parametrize("count", [1023, 2048, 2049, 100_000, 1_100_000])
def test_symbols_of_several_lanes_come_back(count: int) -> None:
    symbols = gaps(count)
    data = ans.encode(symbols, count_symbols(symbols))
    np.testing.assert_array_equal(decoded(data, count), symbols)


def test_two_symbols_by_hand() -> None:
    # Frequencies 48 and 16 of 64, one lane, symbols 0 1. Backward from 65536:
    # symbol 1: 65536 = 16 * 4096 + 0, so 64 * 4096 + 0 + 48 = 262192 (its slots start at 48);
    # symbol 0: 262192 = 48 * 5462 + 16, so 64 * 5462 + 16 + 0 = 349584. No word is written.
    table = pack_frequencies(np.array([48, 16], dtype=np.int64))
    data = table + varint(1) + varint(0) + (349584).to_bytes(4, "little")
    assert decoded(data, 2).tolist() == [0, 1]


def test_a_long_stream_takes_its_entropy() -> None:
    symbols = gaps(1_000_000)
    counts = count_symbols(symbols)
    data = ans.encode(symbols, counts)
    shares = counts[counts > 0] / symbols.size
    entropy = -(shares * np.log2(shares)).sum() * symbols.size / 8
    assert len(data) < 1.006 * entropy


@pytest.mark.parametrize("count", [2, 50, 5000, 200_000])
def test_the_size_is_foretold(count: int) -> None:
    symbols = gaps(count)
    symbols[:2] = 0, 1
    counts = count_symbols(symbols)
    size = len(ans.encode(symbols, counts))
    assert ans.estimated_size(counts) == pytest.approx(size, abs=4, rel=1e-3)


def test_alphabets_that_do_not_fit_are_no_choice() -> None:
    assert ans.estimated_size(np.ones(4097, dtype=np.int64)) == float("inf")
    assert ans.estimated_size(np.array([5])) == float("inf")


def test_every_cut_is_refused() -> None:
    symbols = gaps(500)
    data = ans.encode(symbols, count_symbols(symbols))
    for size in range(len(data)):
        with pytest.raises(StorageError):
            decoded(data[:size], 500)


def test_another_count_of_symbols_is_refused() -> None:
    symbols = gaps(500)
    data = ans.encode(symbols, count_symbols(symbols))
    for count in (1, 499, 501, 10_000):
        with pytest.raises(StorageError):
            decoded(data, count)


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(0, 7))
def test_a_flipped_bit_never_ends_in_another_error(byte: int, bit: int) -> None:
    symbols = gaps(500)
    data = bytearray(ans.encode(symbols, count_symbols(symbols)))
    data[byte % len(data)] ^= 1 << bit
    with contextlib.suppress(StorageError):
        assert decoded(bytes(data), 500).size == 500


@pytest.mark.parametrize(("lanes", "state"), [(0, 65536), (4, 65536), (5000, 65536), (1, 65535)])
def test_impossible_lanes_and_states_are_refused(lanes: int, state: int) -> None:
    table = pack_frequencies(np.array([48, 16], dtype=np.int64))
    states = state.to_bytes(4, "little") * lanes
    with pytest.raises(StorageError, match="contradicts"):
        decoded(table + varint(lanes) + varint(0) + states, 3)


def test_lanes_are_at_most_4096_as_the_page_says() -> None:
    table = pack_frequencies(np.array([48, 16], dtype=np.int64))

    def opened(lanes: int) -> ans.AnsReader:
        states = (65536).to_bytes(4, "little") * lanes
        return ans.AnsReader(ByteReader(table + varint(lanes) + varint(0) + states), 5000)

    opened(4096)
    with pytest.raises(StorageError, match="contradicts"):
        opened(4097)


@pytest.mark.parametrize("portion", [1, 3, 4096, 5000])
def test_symbols_are_read_in_portions_of_any_size(portion: int) -> None:
    symbols = gaps(5000)
    reader = ans.AnsReader(ByteReader(ans.encode(symbols, count_symbols(symbols))), 5000)
    parts = [reader.read(min(portion, 5000 - at)) for at in range(0, 5000, portion)]
    np.testing.assert_array_equal(np.concatenate(parts), symbols)


@pytest.mark.parametrize("last", [87376, 87376 + 64])
def test_every_lane_ends_in_the_state_in_which_the_writer_began(last: int) -> None:
    """By hand, of 48 and 16 of 64: 65536 = 48 * 1365 + 16, so 64 * 1365 + 16 for symbol 0."""
    table = pack_frequencies(np.array([48, 16], dtype=np.int64))
    states = b"".join(state.to_bytes(4, "little") for state in (87376, last))
    data = table + varint(2) + varint(0) + states
    if last == 87376:
        assert decoded(data, 2).tolist() == [0, 0]
    else:
        with pytest.raises(StorageError, match="contradicts"):
            decoded(data, 2)


@pytest.mark.parametrize("bits", range(25))
def test_lanes_are_many_enough_for_numpy_and_cost_little(bits: int) -> None:
    """A lane costs 3 bytes: at most 0.3 % of a byte a symbol, and 0.1 % of long streams.

    Steps of 1,024 symbols are fast enough.
    """
    lanes = ans.lanes_of(1 << bits)
    assert 1 <= lanes <= ans.MOST_LANES
    assert lanes == 1 or 3 * lanes <= (0.003 if bits < 22 else 0.001) * (1 << bits)
    assert lanes >= min(1024, (1 << bits) >> 10)

"""Huffman streams: round trips, exact sizes, and nothing but StorageError for damaged ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nncfx.errors import StorageError
from nncfx.storage.codecs import huffman
from nncfx.storage.codecs.byte_reader import ByteReader, varint
from nncfx.storage.codecs.prefix_code import pack_lengths

SYMBOLS = st.lists(st.integers(0, 300), min_size=1, max_size=400).map(
    lambda s: np.array(s, dtype=np.uint16)
)


def decoded(data: bytes, count: int) -> np.ndarray:
    source = ByteReader(data)
    symbols = huffman.decode(source, count)
    source.finish()
    return symbols


def geometric(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.minimum(rng.geometric(0.1, count) - 1, 255).astype(np.uint16)


def test_a_stream_worked_out_by_hand() -> None:
    # Words: 0 is "0", 1 is "10", 2 is "11". Table of 3 symbols: length 1 "111 0000", one longer
    # "10 0", the same "0", padding; then 6 bits: "0 0 10 11", padding.
    data = huffman.encode(np.array([0, 0, 1, 2], dtype=np.uint8))
    assert data == bytes([3, 0b11100001, 0b00000000, 6, 0b00101100])


@given(SYMBOLS)
def test_symbols_come_back(symbols: np.ndarray) -> None:
    np.testing.assert_array_equal(decoded(huffman.encode(symbols), symbols.size), symbols)


@given(SYMBOLS)
def test_the_size_is_known_from_the_counts(symbols: np.ndarray) -> None:
    counts = huffman.count_symbols(symbols)
    assert huffman.encoded_size(counts) == len(huffman.encode(symbols))


@pytest.mark.parametrize("size", [1, 2, 3, 255, 256, 257, 65536])
def test_every_alphabet_size_comes_back(size: int) -> None:
    symbols = np.random.default_rng(size).permutation(size).astype(np.uint16)
    np.testing.assert_array_equal(decoded(huffman.encode(symbols), size), symbols)


@pytest.mark.parametrize("beyond", [0, 1, 2047, 2048, 2049])
def test_streams_around_the_index_come_back(beyond: int) -> None:
    symbols = geometric(huffman.INDEXED_ABOVE + beyond)
    data = huffman.encode(symbols)
    np.testing.assert_array_equal(decoded(data, symbols.size), symbols)
    assert len(data) == huffman.encoded_size(huffman.count_symbols(symbols))


def test_a_large_stream_with_the_longest_words_comes_back() -> None:
    rng = np.random.default_rng(1)
    rare = np.arange(2, 3000, dtype=np.uint16)
    symbols = rng.permutation(np.concatenate([rare, np.zeros(2_300_000, dtype=np.uint16)]))
    np.testing.assert_array_equal(decoded(huffman.encode(symbols), symbols.size), symbols)


def test_a_short_stream_pays_few_bytes_beyond_its_bits() -> None:
    symbols = geometric(500)
    shares = np.bincount(symbols) / 500
    entropy = -(shares[shares > 0] * np.log2(shares[shares > 0])).sum() * 500 / 8
    assert len(huffman.encode(symbols)) < entropy + 40


def test_one_repeated_symbol_takes_no_bits() -> None:
    assert len(huffman.encode(np.full(1_000_000, 3, dtype=np.uint8))) <= 5


def test_no_symbols_take_no_bytes() -> None:
    assert huffman.encode(np.zeros(0, dtype=np.uint16)) == b""
    assert decoded(b"", 0).size == 0


@pytest.mark.parametrize("off", [-1, 1, 10**6])
def test_a_wrong_count_is_refused(off: int) -> None:
    symbols = geometric(1000)
    with pytest.raises(StorageError):
        decoded(huffman.encode(symbols), symbols.size + off)


def test_every_truncation_is_refused() -> None:
    data = huffman.encode(geometric(200))
    for size in range(len(data)):
        with pytest.raises(StorageError):
            decoded(data[:size], 200)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_flipped_bits_give_our_error_or_symbols(data: st.DataObject) -> None:
    stream = bytearray(huffman.encode(geometric(200)))
    for _ in range(data.draw(st.integers(1, 3))):
        bit = data.draw(st.integers(0, 8 * len(stream) - 1))
        stream[bit // 8] ^= 1 << bit % 8
    try:
        symbols = decoded(bytes(stream), 200)
    except StorageError:
        return
    assert symbols.shape == (200,)


def test_an_index_that_shifts_a_block_by_a_bit_is_refused() -> None:
    symbols = np.tile(np.array([0, 1, 2, 0], dtype=np.uint16), huffman.INDEXED_ABOVE // 4 + 1024)
    data = bytearray(huffman.encode(symbols))
    lengths = np.array([3072, 3072], dtype="<u2").tobytes()  # 1.5 bits a symbol
    at = data.index(lengths)
    data[at : at + 4] = np.array([3073, 3071], dtype="<u2").tobytes()
    with pytest.raises(StorageError, match="contradicts its own lengths"):
        decoded(bytes(data), symbols.size)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 400))
def test_a_damaged_index_gives_our_error_or_symbols(seed: int, flips: int) -> None:
    count = huffman.INDEXED_ABOVE + 5000
    stream = bytearray(huffman.encode(geometric(count)))
    rng = np.random.default_rng(seed)
    for place in rng.integers(20, 700, flips):  # the table ends and the index begins in there
        stream[place] ^= 1 << int(rng.integers(8))
    try:
        symbols = decoded(bytes(stream), count)
    except StorageError:
        return
    assert symbols.shape == (count,)


def test_padding_that_is_not_zero_is_refused() -> None:
    """Two files that hold the same symbols are the same file."""
    data = bytearray([3, 0b11100001, 0b00000000, 6, 0b00101100])
    assert decoded(bytes(data), 4).tolist() == [0, 0, 1, 2]
    for bit in (0b01, 0b10):
        data[-1] = 0b00101100 | bit
        with pytest.raises(StorageError, match="Huffman stream"):
            decoded(bytes(data), 4)


@pytest.mark.parametrize(("count", "blocks"), [(262_144, 0), (262_145, 128)])
def test_streams_of_more_than_262144_symbols_have_an_index_of_their_blocks(
    count: int, blocks: int
) -> None:
    """docs/format.md: two bytes for each full block of 2,048; a bit for each of two symbols."""
    symbols = np.arange(count, dtype=np.uint16) % 2
    head = len(pack_lengths(np.array([1, 1], dtype=np.uint8))) + len(varint(count))
    data = huffman.encode(symbols)
    assert len(data) == head + 2 * blocks + (count + 7) // 8
    np.testing.assert_array_equal(decoded(data, count), symbols)


def test_no_symbols_have_no_counts() -> None:
    assert huffman.count_symbols(np.zeros(0, dtype=np.uint8)).tolist() == []


@pytest.mark.parametrize("lanes", [1, 50, 128])
def test_blocks_are_decoded_in_portions_of_any_number(
    lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huffman, "_LANES", lanes)
    symbols = geometric(262_145)
    np.testing.assert_array_equal(decoded(huffman.encode(symbols), symbols.size), symbols)


@pytest.mark.parametrize("counts", [[0], [0, 5], [0, 5, 1]])
def test_the_size_of_streams_of_few_kinds_of_symbols_is_exact(counts: list[int]) -> None:
    symbols = np.repeat(np.arange(len(counts), dtype=np.uint8), counts)
    assert huffman.encoded_size(np.array(counts)) == len(huffman.encode(symbols))

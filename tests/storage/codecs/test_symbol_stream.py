"""Symbol streams: the smallest of fixed-width, Huffman and ANS."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nncfx.errors import StorageError
from nncfx.storage.codecs import ans, huffman
from nncfx.storage.codecs.byte_reader import ByteReader, varint
from nncfx.storage.codecs.huffman import count_symbols
from nncfx.storage.codecs.symbol_stream import (
    ANS,
    HUFFMAN,
    encode_symbols,
    least_size,
    open_symbols,
    pack_bits,
    symbols_size,
    unpack_bits,
)

STREAMS = {
    8: np.random.default_rng(0).integers(0, 256, 5000).astype(np.uint8),
    32: np.array([0, 1, 0, 2] * 1250, dtype=np.uint8),
    33: np.array([0] * 4500 + [1] * 250 + [2] * 250, dtype=np.uint8),
}
SYMBOLS = st.lists(st.integers(0, 65535), max_size=300).map(lambda s: np.array(s, dtype=np.uint16))


@settings(deadline=None)
@given(SYMBOLS)
def test_symbols_come_back_in_the_size_foretold(symbols: np.ndarray) -> None:
    data = encode_symbols(symbols)
    source = ByteReader(data)
    np.testing.assert_array_equal(open_symbols(source, symbols.size).read(symbols.size), symbols)
    source.finish()
    exact = not data or data[0] != 33
    assert symbols_size(count_symbols(symbols)) == pytest.approx(len(data), abs=0 if exact else 4)


@pytest.mark.parametrize("width", range(17))
def test_every_width_comes_back(width: int) -> None:
    symbols = np.random.default_rng(0).integers(0, 1 << width, 1003).astype(np.uint16)
    raw = np.frombuffer(pack_bits(symbols, width), dtype=np.uint8)
    assert raw.size == (1003 * width + 7) // 8
    np.testing.assert_array_equal(unpack_bits(raw, 0, 1003, width), symbols)


@pytest.mark.parametrize("width", range(17))
def test_any_part_of_every_width_comes_back(width: int) -> None:
    symbols = np.random.default_rng(0).integers(0, 1 << width, 303).astype(np.uint16)
    raw = np.frombuffer(pack_bits(symbols, width), dtype=np.uint8)
    for first in range(0, 300, 7):
        np.testing.assert_array_equal(
            unpack_bits(raw, first, 3, width), symbols[first : first + 3]
        )


@pytest.mark.parametrize("width", [3, 8])
def test_a_long_stream_comes_back_across_chunks(width: int) -> None:
    symbols = np.random.default_rng(0).integers(0, 1 << width, (1 << 20) + 77).astype(np.uint16)
    raw = np.frombuffer(pack_bits(symbols, width), dtype=np.uint8)
    np.testing.assert_array_equal(unpack_bits(raw, 0, symbols.size, width), symbols)


def test_noise_is_packed_and_never_larger_than_it_was() -> None:
    noise = np.random.default_rng(0).integers(0, 256, 5000).astype(np.uint8)
    assert encode_symbols(noise)[:2] == b"\x08\x00"
    assert len(encode_symbols(noise)) == 5002


def test_shares_that_are_powers_of_two_are_huffman_coded() -> None:
    assert encode_symbols(np.array([0] * 512 + [1] * 256 + [2] * 256, dtype=np.uint8))[0] == 32


def test_a_stream_below_a_bit_a_symbol_is_ans_coded() -> None:
    skewed = np.array([0] * 9000 + [1] * 500 + [2] * 500, dtype=np.uint8)
    data = encode_symbols(skewed)
    assert data[0] == 33
    # the entropy is 0.569 bits, Huffman takes 1.1: 1,375 bytes
    assert len(data) < 0.62 * 10000 / 8


def test_the_kind_chosen_is_the_smallest() -> None:
    rng = np.random.default_rng(0)
    for scale in (0.5, 2, 20, 200):
        symbols = np.minimum(rng.exponential(scale, 3000), 255).astype(np.uint8)
        counts = count_symbols(symbols)
        width = int(symbols.max() - symbols.min()).bit_length()
        fixed = (symbols.size * width + 7) // 8 + 2
        coded = (1 + len(huffman.encode(symbols)), 1 + len(ans.encode(symbols, counts)))
        assert len(encode_symbols(symbols)) <= min(fixed, *coded) + 4


@given(st.lists(st.integers(0, 40), min_size=1, max_size=400))
def test_no_stream_is_below_the_least_size(found: list[int]) -> None:
    symbols = np.array(found, dtype=np.uint16)
    counts = count_symbols(symbols)
    least = least_size(counts)
    assert least <= len(encode_symbols(symbols))
    assert least <= len(huffman.encode(symbols)) + 1
    assert huffman.least_size(counts) <= huffman.encoded_size(counts)
    if np.count_nonzero(counts) > 1:
        assert least <= len(ans.encode(symbols, counts)) + 1


@pytest.mark.parametrize("kind", [8, 32, 33])
@settings(deadline=None)
@given(parts=st.lists(st.integers(0, 700), max_size=9))
def test_reading_in_parts_is_reading_at_once(kind: int, parts: list[int]) -> None:
    symbols = STREAMS[kind]
    data = encode_symbols(symbols)
    assert data[0] == kind
    reader = open_symbols(ByteReader(data), symbols.size)
    at = 0
    for part in parts:
        size = min(part, symbols.size - at)
        np.testing.assert_array_equal(reader.read(size), symbols[at : at + size])
        at += size


@pytest.mark.parametrize(
    "data",
    [b"", b"\x11\x00", b"\x21", b"\x00\x80\x80\x04", b"\x01\xff\xff\x03\x80", b"\x01\x00\xff"],
)
def test_a_damaged_stream_is_refused(data: bytes) -> None:
    with pytest.raises(StorageError):
        open_symbols(ByteReader(data), 1).read(1)


@pytest.mark.parametrize(("kind", "low"), [(17, 0), (31, 0), (0, 1 << 16), (4, 1 << 16)])
def test_symbols_of_more_than_sixteen_bits_are_refused_unread(kind: int, low: int) -> None:
    data = bytes([kind]) + varint(low) + bytes(100)
    with pytest.raises(StorageError, match="a symbol stream of kind"):
        open_symbols(ByteReader(data), 10)


def test_a_symbol_beyond_16_bits_is_refused_wherever_it_stands() -> None:
    """From 65,535 on, of one bit each: 0 is the last symbol that there is, 1 is none."""
    head = bytes([1]) + varint(65535)
    assert open_symbols(ByteReader(head + b"\x00"), 2).read(2).tolist() == [65535, 65535]
    with pytest.raises(StorageError, match="exceeds 16 bits"):
        open_symbols(ByteReader(head + bytes([0b01000000])), 2).read(2)


@pytest.mark.parametrize("width", range(17))
@pytest.mark.parametrize("first", [0, 1, 8, 777])
def test_cells_of_bits_are_read_from_any_place(width: int, first: int) -> None:
    symbols = np.random.default_rng(width).integers(0, 1 << width, 1603).astype(np.uint16)
    raw = np.frombuffer(pack_bits(symbols, width), dtype=np.uint8)
    for count in (0, 1, 7, 8, 9, 1603 - first):
        found = unpack_bits(raw, first, count, width)
        np.testing.assert_array_equal(found, symbols[first : first + count])


def test_huffman_is_written_where_it_saves_a_thousandth_and_not_for_less() -> None:
    rng = np.random.default_rng(0)
    kinds = set()
    for scale in np.linspace(1, 40, 60):
        symbols = np.abs(np.rint(rng.laplace(0, scale, 20_000))).astype(np.uint16)
        counts = count_symbols(symbols)
        saved = 1 - (1 + huffman.encoded_size(counts)) / (1 + ans.estimated_size(counts))
        kind = encode_symbols(symbols)[0]
        assert kind == (HUFFMAN if saved >= 0.001 else ANS)
        kinds.add((kind, saved > 0))
    assert kinds == {(HUFFMAN, True), (ANS, True), (ANS, False)}

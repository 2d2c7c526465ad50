"""Symbol streams: the smaller of fixed-width and Huffman."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.errors import StorageError
from nncfx.storage.byte_reader import ByteReader
from nncfx.storage.huffman import count_symbols
from nncfx.storage.symbol_stream import (
    decode_symbols,
    encode_symbols,
    pack_bits,
    symbols_size,
    unpack_bits,
)

SYMBOLS = st.lists(st.integers(0, 65535), max_size=300).map(lambda s: np.array(s, dtype=np.uint16))


@given(SYMBOLS)
def test_symbols_come_back_in_the_size_foretold(symbols: np.ndarray) -> None:
    data = encode_symbols(symbols)
    source = ByteReader(data)
    np.testing.assert_array_equal(decode_symbols(source, symbols.size), symbols)
    source.finish()
    assert symbols_size(count_symbols(symbols)) == len(data)


@pytest.mark.parametrize("width", range(17))
def test_every_width_comes_back(width: int) -> None:
    symbols = np.random.default_rng(0).integers(0, 1 << width, 1003).astype(np.uint16)
    source = ByteReader(pack_bits(symbols, width))
    np.testing.assert_array_equal(unpack_bits(source, 1003, width), symbols)
    source.finish()


def test_a_long_odd_width_stream_comes_back_across_chunks() -> None:
    symbols = np.random.default_rng(0).integers(0, 8, (1 << 20) + 77).astype(np.uint16)
    source = ByteReader(pack_bits(symbols, 3))
    np.testing.assert_array_equal(unpack_bits(source, symbols.size, 3), symbols)


def test_noise_is_packed_and_never_larger_than_it_was() -> None:
    noise = np.random.default_rng(0).integers(0, 256, 5000).astype(np.uint8)
    assert encode_symbols(noise)[:2] == b"\x08\x00"
    assert len(encode_symbols(noise)) == 5002


def test_a_skewed_stream_is_huffman_coded() -> None:
    skewed = np.array([0] * 900 + [1] * 50 + [2] * 50, dtype=np.uint8)
    assert encode_symbols(skewed)[0] == 32


@pytest.mark.parametrize(
    "data",
    [b"", b"\x11\x00", b"\x21", b"\x00\x80\x80\x04", b"\x01\xff\xff\x03\x80", b"\x01\x00\xff"],
)
def test_a_damaged_stream_is_refused(data: bytes) -> None:
    with pytest.raises(StorageError):
        decode_symbols(ByteReader(data), 1)

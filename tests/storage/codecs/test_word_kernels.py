"""Compiled loops do what numpy does."""

import numpy as np
import pytest

from nncfx.storage.codecs import ans, symbol_stream, value_reader
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.codecs.huffman import count_symbols
from nncfx.storage.codecs.symbol_stream import pack_bits
from nncfx.storage.codecs.tensor_codecs import decode_words, encode_words
from nncfx.storage.codecs.word_kernels import ans_step, join_words, unpack_cells

RNG = np.random.default_rng(0)


def bfloat16(count: int) -> np.ndarray:
    return ((0.05 * RNG.normal(size=count)).astype("<f4").view("<u4") >> 16).astype("<u2")


@pytest.mark.parametrize("lanes", [1, 7, 64])
def test_lanes_read_what_was_written(lanes: int) -> None:
    symbols = np.minimum(RNG.geometric(0.1, 2000), 300).astype(np.uint16)
    data = ans.encode(symbols, count_symbols(symbols), lanes)
    reader = ans.AnsReader(ByteReader(data), symbols.size)
    out = np.empty(symbols.size, np.uint16)
    used = ans_step(reader._state, reader._words, reader._packed, reader._bits, out)
    np.testing.assert_array_equal(out, symbols)
    assert used == reader._words.size
    assert (reader._state == 1 << 16).all()


@pytest.mark.parametrize("lanes", [1, 7, 64])
def test_lanes_write_what_numpy_writes(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    symbols = np.minimum(RNG.geometric(0.1, 2000), 300).astype(np.uint16)
    counts = count_symbols(symbols)
    written = []
    for is_compiled in (False, True):
        monkeypatch.setattr(ans, "pays_off", lambda _, known=is_compiled: known)
        written.append(ans.encode(symbols, counts, lanes))
    assert written[0] == written[1]


@pytest.mark.parametrize("width", range(1, 8))
def test_cells_of_every_width_are_unpacked(width: int) -> None:
    cells = RNG.integers(0, 1 << width, 501).astype(np.uint16)
    raw = np.frombuffer(pack_bits(cells, width), np.uint8)
    out = np.empty(490, np.uint16)
    unpack_cells(raw, 11, width, out)
    np.testing.assert_array_equal(out, cells[11:])


def test_words_are_joined_and_the_largest_parts_are_told() -> None:
    words = RNG.integers(0, 1 << 16, 1000).astype(np.uint16)
    turned = words << 1 | words >> 15
    top, joined = turned >> 6, turned & 63
    assert join_words(top, joined, 6) == (top.max(), (turned & 63).max())
    np.testing.assert_array_equal(joined, words)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("lanes", [1, 7, 64])
def test_symbols_are_read_in_portions_of_any_size(
    is_compiled: bool, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ans, "pays_off", lambda _: is_compiled)
    symbols = np.minimum(RNG.geometric(0.1, 2000), 300).astype(np.uint16)
    reader = ans.AnsReader(ByteReader(ans.encode(symbols, count_symbols(symbols), lanes)), 2000)
    portions = [0, 1, 6, 7, 63, 64, 65, 500, 1, 0, 200, 1093]
    found = np.concatenate([reader.read(count) for count in portions])
    np.testing.assert_array_equal(found, symbols[: found.size])
    assert found.size == symbols.size


@pytest.mark.parametrize("is_compiled", [True, False])
def test_16_bit_floats_are_lossless_at_two_thirds(
    is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (ans, symbol_stream, value_reader):
        monkeypatch.setattr(module, "pays_off", lambda _: is_compiled)
    words = bfloat16(100_000)
    words[:6] = (0x7F80, 0xFF80, 0x7FC1, 0x8000, 0x0001, 0xFFFF)  # infinite, NaN, -0.0, tiny
    codec, data = encode_words(words)
    assert codec == "dense+split"
    # Gauss: 1 sign, 7 mantissa and 2.55 bits of exponent of 16, less what mantissas tell
    assert 0.65 < len(data) / words.nbytes < 0.665
    np.testing.assert_array_equal(decode_words(codec, ByteReader(data), words.size, 2), words)
    half = RNG.normal(size=50_000).astype("<f2").view("<u2")
    codec, data = encode_words(half)
    assert codec == "dense+split"
    np.testing.assert_array_equal(decode_words(codec, ByteReader(data), half.size, 2), half)

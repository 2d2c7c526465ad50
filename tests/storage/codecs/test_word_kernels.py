"""Compiled loops do what numpy does."""

import numpy as np
import pytest

from nncfx.errors import StorageError
from nncfx.storage.codecs import ans, symbol_stream
from nncfx.storage.codecs.byte_reader import ByteReader, varint
from nncfx.storage.codecs.huffman import count_symbols
from nncfx.storage.codecs.symbol_stream import pack_bits
from nncfx.storage.codecs.tensor_codecs import decode_words, encode_words
from nncfx.storage.codecs.value_reader import open_values
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


def test_words_are_joined_and_the_largest_high_part_is_told() -> None:
    words = RNG.integers(0, 1 << 16, 1000).astype(np.uint16)
    turned = words << 1 | words >> 15
    top, low = turned >> 6, turned & 63
    assert join_words(top.copy(), low, 6) == top.max()
    join_words(top, low, 6)
    np.testing.assert_array_equal(top, words)


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
    for module in (ans, symbol_stream):
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


@pytest.mark.parametrize("cut", [1, 6, 8])
@pytest.mark.parametrize("lanes", [1, 7, 64, 2000])
def test_split_words_are_read_in_portions_as_numpy_reads_them(
    cut: int, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    high = np.minimum(RNG.geometric(0.1, 5000), 200).astype(np.uint16)
    low = RNG.integers(0, 1 << cut, high.size).astype(np.uint16)
    stream = bytes([33]) + ans.encode(high, count_symbols(high), lanes)
    data = varint(cut) + stream + bytes([cut]) + varint(0) + pack_bits(low, cut)
    turned = high << cut | low
    for is_compiled in (True, False):
        monkeypatch.setattr(ans, "pays_off", lambda _, known=is_compiled: known)
        reader = open_values("split", ByteReader(data), high.size, 2)
        assert reader.is_in_place is is_compiled
        portions = [1, 6, 0, 7, 1023, 1024, 1025, 500, 1414]
        found = np.concatenate([reader.read(count) for count in portions])
        np.testing.assert_array_equal(found, turned >> 1 | turned << 15)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_high_parts_that_leave_no_room_for_low_ones_are_refused(
    is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ans, "pays_off", lambda _: is_compiled)
    high = np.array([1, 2, 256, 2] * 30, dtype=np.uint16)
    stream = bytes([33]) + ans.encode(high, count_symbols(high), 4)
    data = varint(8) + stream + bytes([8]) + varint(0) + bytes(high.size)
    reader = open_values("split", ByteReader(data), high.size, 2)
    with pytest.raises(StorageError, match="part of a split word is too large"):
        reader.read(high.size)

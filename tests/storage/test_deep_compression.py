"""Deep Compression's layout, byte by byte."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nncfx.errors import StorageError
from nncfx.storage.deep_compression import Entries, Layer, decode, encode

BOOK4 = np.array([0, *range(1, 16)], dtype=np.float32)
BOOK8 = np.array([0, *range(1, 256)], dtype=np.float32)


def file_of(count: int, bias: list[float], codes: list[int], gaps: list[int]) -> bytes:
    """Return a one-layer 4-bit file, its streams given as bytes."""
    return b"".join(
        [
            np.array([count], dtype="<u4").tobytes(),
            BOOK4.tobytes(),
            np.array(bias, dtype="<f4").tobytes(),
            bytes(codes),
            bytes(gaps),
        ]
    )


def weight_of(size: int, **at: int) -> np.ndarray:
    weight = np.zeros((1, size), dtype=np.float32)
    for position, value in at.items():
        weight[0, int(position[1:])] = value
    return weight


@pytest.mark.parametrize(
    ("weight", "count", "codes", "gaps"),
    [
        (weight_of(40, p15=3), 1, [0x03], [0x0F]),
        (weight_of(40, p16=3), 2, [0x30], [0x0F]),  # filler (code 0, gap 15), then gap 0
        (weight_of(40, p31=3), 2, [0x30], [0xFF]),
        (weight_of(40, p32=3), 3, [0x00, 0x03], [0xFF, 0x00]),
        (weight_of(40, p0=1, p1=2, p2=1, p6=2, p8=1), 5, [0x21, 0x21, 0x01], [0, 0x30, 0x01]),
        (weight_of(40, p5=1, p6=2, p7=3), 3, [0x21, 0x03], [0x05, 0x00]),  # an odd count
        (weight_of(40), 0, [], []),  # all zero
        (weight_of(1, p0=15), 1, [0x0F], [0x00]),  # one weight
    ],
)
def test_boundary_cases_have_these_bytes(
    weight: np.ndarray, count: int, codes: list[int], gaps: list[int]
) -> None:
    layers = [("fc", weight.shape, 4)]
    data = file_of(count, [0.5], codes, gaps)
    bias = np.array([0.5], dtype=np.float32)
    assert encode({"fc": Layer(weight, bias, BOOK4)}, layers) == data
    layer = decode(data, layers)["fc"]
    np.testing.assert_array_equal(layer.weight, weight)
    np.testing.assert_array_equal(layer.bias, bias)
    np.testing.assert_array_equal(layer.codebook, BOOK4)
    assert encode({"fc": layer}, layers) == data


def test_eight_bit_codes_are_whole_bytes_in_the_order_codebook_bias_codes_gaps() -> None:
    layers = [("conv", (2, 1, 1, 2), 8)]
    weight = np.array([200, 0, 0, 7], dtype=np.float32).reshape(2, 1, 1, 2)
    data = (
        np.array([2], dtype="<u4").tobytes()
        + BOOK8.tobytes()
        + np.array([1.0, 2.0], dtype="<f4").tobytes()
        + bytes([200, 7])
        + bytes([0x20])
    )
    np.testing.assert_array_equal(decode(data, layers)["conv"].weight, weight)
    layer = Layer(weight, np.array([1.0, 2.0], dtype=np.float32), BOOK8)
    assert encode({"conv": layer}, layers) == data


def test_an_empty_layer_has_no_streams() -> None:
    layers = [("fc", (0, 4), 4)]
    data = file_of(0, [], [], [])
    assert decode(data, layers)["fc"].weight.shape == (0, 4)
    assert encode(decode(data, layers), layers) == data


def test_codes_that_share_a_value_survive() -> None:
    book = np.zeros(16, dtype=np.float32)
    book[3] = book[5] = 2.0
    data = bytearray(file_of(2, [0.0], [0x35], [0x00]))
    data[4 : 4 + 64] = book.tobytes()
    layers = [("fc", (1, 4), 4)]
    assert encode(decode(bytes(data), layers), layers) == bytes(data)


def test_a_filler_where_none_is_needed_survives() -> None:
    data = file_of(2, [0.0], [0x10], [0x02])
    layers = [("fc", (1, 8), 4)]
    np.testing.assert_array_equal(decode(data, layers)["fc"].weight, weight_of(8, p3=1))
    assert encode(decode(data, layers), layers) == data


@settings(deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_clustered_layers_come_back_and_files_again_byte_for_byte(
    seed: int, sparsity: float
) -> None:
    rng = np.random.default_rng(seed)
    layers = [("conv1", (4, 3, 3, 3), 8), ("fc2", (5, 37), 4)]
    decoded = {}
    for name, shape, bits in layers:
        book = rng.normal(size=1 << bits).astype(np.float32)
        book[0] = 0
        codes = rng.integers(0, 1 << bits, math.prod(shape))
        codes[rng.random(codes.size) < sparsity] = 0
        bias = rng.normal(size=shape[0]).astype(np.float32)
        decoded[name] = Layer(book[codes].reshape(shape), bias, book)
    data = encode(decoded, layers)
    again = decode(data, layers)
    for name, layer in decoded.items():
        np.testing.assert_array_equal(again[name].weight, layer.weight)
        np.testing.assert_array_equal(again[name].bias, layer.bias)
    assert encode(again, layers) == data


def test_alexnets_published_header_gives_its_published_size() -> None:
    counts = [29388, 118492, 309138, 247913, 163904, 4665474, 1959380, 1061645]
    outs = [96, 256, 384, 384, 256, 4096, 4096, 1000]
    sizes = [45490, 179786, 466267, 374430, 247904, 4681922, 1975828, 1065710]
    for index, (count, out, size) in enumerate(zip(counts, outs, sizes, strict=True)):
        bits = 8 if index < 5 else 4
        layers = [("layer", (out, -(-count // out)), bits)]
        flat = np.zeros(out * layers[0][1][1], dtype=np.float32)
        flat[:count] = 1.0
        book = BOOK8 if bits == 8 else BOOK4
        layer = Layer(flat.reshape(layers[0][1]), np.zeros(out, dtype=np.float32), book)
        assert len(encode({"layer": layer}, layers)) - 4 == size


LAYERS = [("fc", (1, 40), 4)]
GOOD = file_of(3, [0.5], [0x00, 0x03], [0xFF, 0x00])


def test_every_truncation_is_refused() -> None:
    for size in range(len(GOOD)):
        with pytest.raises(StorageError):
            decode(GOOD[:size], LAYERS)


def test_every_flipped_bit_gives_our_error_or_a_layer() -> None:
    for bit in range(8 * len(GOOD)):
        data = bytearray(GOOD)
        data[bit // 8] ^= 1 << bit % 8
        try:
            layer = decode(bytes(data), LAYERS)["fc"]
        except StorageError:
            continue
        assert layer.weight.shape == (1, 40)


@pytest.mark.parametrize(
    ("data", "layers", "words"),
    [
        (GOOD + b"\0", LAYERS, "1 bytes are left over"),
        (GOOD, [("fc", (1, 32), 4)], "reaches position 32 in a tensor of 32"),
        (GOOD, [("fc", (1, 2), 4)], "3 entries are more than the 2 weights"),
        (b"\xff\xff\xff\xff" + GOOD[4:], LAYERS, "4294967295 entries"),
        (GOOD[:-1] + b"\x10", LAYERS, "unused half"),
        (GOOD[:4] + b"\0\0\x80\x3f" + GOOD[8:], LAYERS, "reserved for 0.0"),
        (GOOD, [("fc", (1, 40), 5)], "5-bit codes"),
        (GOOD, [("fc", (), 4)], "which no weight has"),
        (GOOD, LAYERS * 2, "same name"),
    ],
)
def test_a_file_that_does_not_fit_its_layers_is_refused(
    data: bytes, layers: list[tuple[str, tuple[int, ...], int]], words: str
) -> None:
    with pytest.raises(StorageError, match=words):
        decode(data, layers)


def layer_with(**parts: object) -> dict[str, Layer]:
    given = {
        "weight": weight_of(40, p3=1),
        "bias": np.zeros(1, dtype=np.float32),
        "codebook": BOOK4,
        "entries": None,
    }
    return {"fc": Layer(**(given | parts))}


@pytest.mark.parametrize(
    ("decoded", "words"),
    [
        ({}, "No layer 'fc' is given"),
        (layer_with() | {"fd": layer_with()["fc"]}, r"\['fd'\] are given but not"),
        (layer_with(weight=weight_of(41)), "and not float32 of shape"),
        (layer_with(weight=weight_of(40).astype(np.float64)), "is float64"),
        (layer_with(weight=weight_of(40, p3=99)), "position 3 is 99.0, which is not in"),
        (layer_with(codebook=BOOK4 + 1), "reserved for 0.0"),
        (
            layer_with(entries=Entries(np.array([1], np.uint8), np.array([2], np.uint8))),
            "do not give its weight",
        ),
        (
            layer_with(entries=Entries(np.array([16], np.uint8), np.array([3], np.uint8))),
            "exceeds 4 bits",
        ),
        (
            layer_with(entries=Entries(np.array([1], np.uint8), np.array([], np.uint8))),
            "same length",
        ),
    ],
)
def test_layers_that_cannot_be_written_are_refused(decoded: dict[str, Layer], words: str) -> None:
    with pytest.raises(StorageError, match=words):
        encode(decoded, LAYERS)


def test_minus_zero_is_left_out_like_zero() -> None:
    plain = encode(layer_with(), LAYERS)
    weight = weight_of(40, p3=1)
    weight[0, 7] = -0.0
    assert encode(layer_with(weight=weight), LAYERS) == plain

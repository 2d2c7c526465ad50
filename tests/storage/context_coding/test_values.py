"""Integers that stand for words: exactly, or not at all."""

import numpy as np
import pytest

from bit_tensors import bits_of
from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.codecs.number_formats import WIDTHS, BitTensor, Words, widen
from nncfx.storage.context_coding.layout import candidates, in_order
from nncfx.storage.context_coding.values import Meaning, meaning_of, read_meaning, to_words


def words_of(meaning: Meaning, tensor: BitTensor, swapped: int = 0) -> Words:
    layout = list(candidates(meaning.integers))[swapped]
    width = WIDTHS[meaning.stored]
    made = read_meaning(meaning.codec, ByteReader(meaning.head), width, tensor.shape)
    ordered = in_order(meaning.integers, layout)

    def widened(words: Words) -> Words:
        return widen(words, meaning.stored, tensor.dtype)

    return to_words(ordered, layout, tensor.shape, made, widened)


def drawn(seed: int, shape: tuple[int, ...] = (30, 40)) -> np.ndarray:
    return np.rint(np.random.default_rng(seed).laplace(0, 3, shape)).astype(np.int32)


CASES = {
    "a scale": ("F32", drawn(0).astype("<f4") * np.float32(0.0123), "grid"),
    "a coarse scale": ("F32", 3 * drawn(1).astype("<f4") * np.float32(1e-9), "grid"),
    "two multiples of it": ("F32", np.float32(0.7) * np.array([[2, 3]] * 90, "<f4"), "grid"),
    "a scale for each row": (
        "F32",
        drawn(2, (8, 60, 3)).astype("<f4")
        * np.linspace(0.1, 0.2, 8, dtype="<f4").reshape(8, 1, 1),
        "grid",
    ),
    "negative zeros": ("F32", np.float32(-0.5) * np.abs(drawn(3)).astype("<f4"), "codebook"),
    "a codebook": ("F32", np.array([0, 0.1, -7.7, 1e30, np.inf], "<f4")[drawn(4) % 5], "codebook"),
    "halves": ("F16", drawn(5).astype("<f2"), "codebook"),
    "integers": ("I32", drawn(6) * 1000, "integers"),
    "bytes around 128": ("U8", (drawn(7) + 128).astype("u1"), "integers"),
    "wide integers": ("I64", drawn(8).astype("<i8"), "integers"),
    "empty": ("I8", np.zeros((0, 4), "i1"), "integers"),
}


@pytest.mark.parametrize("swapped", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_words_come_back_bit_for_bit(case: str, swapped: int) -> None:
    dtype, array, kind = CASES[case]
    tensor = bits_of(array, dtype)
    meaning = meaning_of(tensor)
    assert meaning
    assert meaning.codec == f"context+{kind}"
    np.testing.assert_array_equal(words_of(meaning, tensor, swapped), tensor.words)


@pytest.mark.parametrize("bits", [4, 8, 12])
def test_a_quantized_tensor_takes_one_scale(bits: int) -> None:
    rng = np.random.default_rng(bits)
    scale = np.float32(rng.uniform(1e-4, 1e-2))
    values = np.rint(rng.normal(0, 2 ** (bits - 3), (200, 90))).astype("<f4") * scale
    meaning = meaning_of(bits_of(values + np.float32(0), "F32"))
    assert meaning
    assert len(meaning.head) == 5


def test_trained_floats_are_no_integers() -> None:
    assert (
        meaning_of(bits_of(np.random.default_rng(0).normal(size=900).astype("<f4"), "F32")) is None
    )
    assert meaning_of(bits_of(np.arange(900, dtype="<i8") << 40, "I64")) is None


@pytest.mark.parametrize(
    ("codec", "head", "width"),
    [
        ("context+integers", b"\x80\x02", 1),
        ("context+integers", b"\0", 8),
        ("context+grid", b"\2" + bytes(8), 4),
        ("context+grid", b"\1" + bytes(4), 2),
        ("context+codebook", b"\xff\xff\x03\1", 1),
    ],
)
def test_heads_out_of_range_are_refused(codec: str, head: bytes, width: int) -> None:
    with pytest.raises(StorageError, match="integers do not decode to numbers"):
        read_meaning(codec, ByteReader(head), width, (3, 3))


@pytest.mark.parametrize("integer", [-3, 3])
def test_integers_without_a_word_are_refused(integer: int) -> None:
    made = read_meaning("context+codebook", ByteReader(b"\2\1" + bytes(3)), 1, (1,))
    with pytest.raises(StorageError, match="integers do not decode to numbers"):
        made(np.array([integer], np.int8), slice(0, 1))
    made = read_meaning("context+integers", ByteReader(b"\0"), 1, (1,))
    with pytest.raises(StorageError, match="integers do not decode to numbers"):
        made(np.array([50 * integer], np.int32), slice(0, 1))


def test_the_largest_float_is_a_grid_of_one_step_without_a_warning() -> None:
    largest = np.finfo(np.float32).max
    values = np.full((4, 9), largest, dtype="<f4") * np.resize([1, -1, 0], (4, 9)).astype("<f4")
    meaning = meaning_of(bits_of(values + np.float32(0), "F32"))
    assert meaning is not None
    assert sorted(np.unique(meaning.integers)) == [-1, 0, 1]

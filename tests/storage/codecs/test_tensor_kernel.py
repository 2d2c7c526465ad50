"""The compiled reader of tensors gives what the plain one gives, and takes nothing else."""

import random

import numpy as np
import pytest

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.codecs.number_formats import Words
from nncfx.storage.codecs.tensor_codecs import decode_words, encode_words
from nncfx.storage.codecs.tensor_kernel import decoded

RNG = np.random.default_rng(0)
COUNTS = (1, 2, 7, 300, 5000, 70_000)


def plain(codec: str, payload: bytes, count: int, width: int) -> Words | None:
    source = ByteReader(payload)
    try:
        words = decode_words(codec, source, count, width)
        source.finish()
    except StorageError:
        return None
    return words


def drawn(count: int, kinds: int, width: int, zeros: float) -> Words:
    """Return words of about `kinds` values, a share of `zeros` of them zero."""
    values = RNG.integers(1, 1 << 8 * width, kinds, dtype=np.uint64, endpoint=False)
    words = values[np.minimum(RNG.geometric(2 / (kinds + 1), count) - 1, kinds - 1)]
    return np.where(RNG.random(count) < zeros, 0, words).astype(f"<u{width}")


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("zeros", [0, 0.5, 0.97])
def test_every_codec_is_read_as_by_the_plain_reader(width: int, zeros: float) -> None:
    for count in COUNTS:
        for kinds in (1, 3, 40, 3000):
            words = drawn(count, kinds, width, zeros)
            codec, payload = encode_words(words)
            if codec.endswith("+split"):
                continue
            found = decoded(codec, memoryview(payload), count, width)
            assert found is not None, codec
            np.testing.assert_array_equal(found, words)


def test_streams_with_an_index_are_read() -> None:
    words = drawn(300_000, 5, 1, 0)  # Huffman: the index begins above 2**18 symbols
    codec, payload = encode_words(words)
    found = decoded(codec, memoryview(payload), words.size, 1)
    np.testing.assert_array_equal(found, words)


def test_what_the_plain_reader_refuses_is_not_taken() -> None:
    draw = random.Random(0)  # noqa: S311 (no secret)
    taken = 0
    for _ in range(4000):
        count, width = draw.choice(COUNTS[:-1]), draw.choice((1, 2, 4))
        words = drawn(count, draw.choice((1, 3, 40, 300)), width, draw.choice((0, 0.5, 0.97)))
        codec, payload = encode_words(words)
        if codec.endswith("+split"):
            continue
        damaged = bytearray(payload)
        for _ in range(draw.choice((1, 1, 3))):
            damaged[draw.randrange(min(len(damaged), 40))] ^= 1 << draw.randrange(8)
        damaged = damaged[: len(damaged) - draw.choice((0, 0, 0, 1, 5))] + bytes(
            draw.choice((0, 1))
        )
        found = decoded(codec, memoryview(damaged), count, width)
        known = plain(codec, bytes(damaged), count, width)
        assert (found is None) == (known is None), (codec, damaged.hex())
        if known is not None:
            np.testing.assert_array_equal(found, known)
            taken += 1
    assert taken > 100  # damaged values are values all the same


def test_other_codecs_and_large_tensors_are_left_to_the_plain_reader() -> None:
    assert decoded("dense+split", memoryview(b""), 1, 2) is None
    assert decoded("dense+raw", memoryview(b""), (1 << 20) + 1, 1) is None

"""Each tensor under its smallest codec, back without loss."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.codecs.tensor_codecs import CODECS, decode_words, encode_words

RNG = np.random.default_rng(0)
LEVELS = RNG.normal(size=32).astype(np.float32).view(np.uint32)


def back(codec: str, payload: bytes, words: np.ndarray) -> np.ndarray:
    source = ByteReader(payload)
    found = decode_words(codec, source, words.size, words.itemsize)
    source.finish()
    return found


def kept(share: float, values: np.ndarray) -> np.ndarray:
    return np.where(RNG.random(values.size) < share, values, 0).astype(values.dtype)


@settings(deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64]),
        st.integers(0, 200),
        elements=st.integers(0, 255) | st.just(0),
    ),
)
def test_words_come_back(words: np.ndarray) -> None:
    codec, payload = encode_words(words)
    np.testing.assert_array_equal(back(codec, payload, words), words)


@pytest.mark.parametrize(
    ("codec", "words"),
    [
        ("dense+raw", RNG.integers(1, 2**32, 50, dtype=np.uint32)),
        ("dense+planes", RNG.normal(size=5000).astype(np.float32).view(np.uint32)),
        ("dense+codebook", RNG.choice(LEVELS[:8], 5000)),
        ("dense+codebook", np.full(1000, LEVELS[0])),
        ("bitmap+raw", kept(0.6, RNG.integers(1, 2**32, 100, dtype=np.uint32))),
        ("bitmap+planes", kept(0.5, RNG.normal(size=5000).astype(np.float32)).view(np.uint32)),
        ("runs+planes", kept(0.1, RNG.normal(size=50000).astype(np.float32)).view(np.uint32)),
        ("runs+raw", kept(0.01, RNG.integers(1, 2**64, 2000, dtype=np.uint64))),
        ("runs+codebook", kept(0.1, RNG.choice(LEVELS, 50000))),
    ],
)
def test_the_codec_that_fits_is_taken_and_lossless(codec: str, words: np.ndarray) -> None:
    name, payload = encode_words(words)
    assert name == codec
    np.testing.assert_array_equal(back(name, payload, words), words)


@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9, 0.99, 0.999])
def test_sparse_clustered_weights_come_near_their_entropy(sparsity: float) -> None:
    words = kept(1 - sparsity, RNG.integers(1, 17, 1_000_000).astype(np.uint32))
    shares = np.bincount(words) / words.size
    shares = shares[shares > 0]
    entropy = -(shares * np.log2(shares)).sum() * words.size / 8
    # Huffman on geometric runs loses at most 3 % of the index; table and codebook are ~100 bytes.
    assert len(encode_words(words)[1]) < 1.03 * entropy + 200


@pytest.mark.parametrize("codec", [c for c in CODECS if c != "dense+raw"])
def test_any_bytes_under_any_codec_give_our_error_or_words(codec: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        data = rng.integers(0, 256, rng.integers(0, 40)).astype(np.uint8).tobytes()
        head = bytes(rng.integers(0, 33, rng.integers(0, 6)).astype(np.uint8))
        try:
            words = decode_words(codec, ByteReader(head + data), 16, 4)
        except StorageError:
            continue
        assert words.shape == (16,)


def test_a_bitmap_with_bits_beyond_the_tensor_is_refused() -> None:
    assert decode_words("bitmap+raw", ByteReader(b"\x04\x07"), 3, 1).tolist() == [0, 0, 7]
    with pytest.raises(StorageError, match="padding"):
        decode_words("bitmap+raw", ByteReader(b"\x08\x07"), 3, 1)


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(StorageError, match="newer than this reader"):
        decode_words("dense+magic", ByteReader(b""), 1, 4)


def test_a_bitmap_of_many_chunks_comes_back() -> None:
    words = np.zeros((1 << 19) + 5, dtype=np.uint8)
    words[[0, 7, 8, (1 << 18) - 1, 1 << 18, (1 << 18) + 9, 1 << 19, (1 << 19) + 4]] = range(1, 9)
    bits = np.packbits(words != 0, bitorder="little").tobytes()
    found = decode_words("bitmap+raw", ByteReader(bits + bytes(range(1, 9))), words.size, 1)
    np.testing.assert_array_equal(found, words)

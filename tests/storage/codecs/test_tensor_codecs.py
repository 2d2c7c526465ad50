"""Each tensor under its smallest codec, back without loss."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader, varint
from nncfx.storage.codecs.symbol_stream import encode_symbols
from nncfx.storage.codecs.tensor_codecs import CODECS, decode_words, encode_words

RNG = np.random.default_rng(0)
LIMITS = (1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 4095)
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
    )
)
def test_words_come_back(words: np.ndarray) -> None:
    codec, payload = encode_words(words)
    np.testing.assert_array_equal(back(codec, payload, words), words)


def values_of(words: np.ndarray, max_codes: int) -> dict[str, bytes]:
    """Return the words under each way to write values, as the module's docstring defines them."""
    rows = words.view(np.uint8).reshape(words.size, words.itemsize)
    found = {"raw": words.tobytes()}
    found["planes"] = b"".join(
        encode_symbols(np.ascontiguousarray(rows[:, k])) for k in range(words.itemsize)
    )
    book = np.unique(words[words != 0])
    if book.size <= max_codes:
        codes = np.where(words == 0, 0, np.searchsorted(book, words) + 1).astype(np.uint16)
        found["codebook"] = varint(book.size) + book.tobytes() + encode_symbols(codes)
    return found


def runs_of(words: np.ndarray, limit: int) -> bytes:
    runs, zeros = [], 0
    for word in words.tolist():
        zeros += not word
        if word or zeros == limit:
            runs.append(zeros)
            zeros = 0
    while runs and runs[-1] == limit:  # what follows the last value is not written
        runs.pop()
    return varint(len(runs)) + varint(limit) + encode_symbols(np.array(runs, dtype=np.uint16))


def every_way(words: np.ndarray, max_codes: int = 256) -> dict[str, int]:
    """Return the size in bytes of `words` under each codec, with the best limit of runs."""
    kept = words[words != 0]
    index = {"bitmap": [np.packbits(words != 0, bitorder="little").tobytes()]}
    index["runs"] = [runs_of(words, limit) for limit in LIMITS]
    sizes = {f"dense+{k}": len(v) for k, v in values_of(words, max_codes).items()}
    for (i, ways), (k, v) in itertools.product(index.items(), values_of(kept, max_codes).items()):
        sizes[f"{i}+{k}"] = min(map(len, ways)) + len(v)
    return sizes


@settings(deadline=None, max_examples=300)
@given(
    density=st.sampled_from([0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]),
    distinct=st.sampled_from([1, 3, 127, 128, 60000]),
    size=st.integers(0, 150),
    kind=st.sampled_from([np.uint8, np.uint16, np.uint32]),
    seed=st.integers(0, 1000),
)
def test_no_codec_makes_words_smaller_than_the_one_that_is_taken(
    density: float, distinct: int, size: int, kind: type, seed: int
) -> None:
    """So small that none is coded by ANS, whose size is estimated to some bytes only."""
    rng = np.random.default_rng(seed)
    top = min(distinct, int(np.iinfo(kind).max))
    words = (rng.integers(1, top, size, endpoint=True) * (rng.random(size) < density)).astype(kind)
    codec, payload = encode_words(words)
    sizes = every_way(words)
    assert (len(payload), sizes[codec]) == (min(sizes.values()),) * 2


@pytest.mark.parametrize("gap", [3, 4, 6, 8, 16, 32, 64, 128, 400, 800, 1024])
def test_runs_are_as_long_as_makes_them_smallest(gap: int) -> None:
    """Of 40 words that lie so far apart in the mean, whatever limit suits these."""
    rng = np.random.default_rng(gap)
    places = np.cumsum(rng.geometric(1 / gap, 40)) - 1
    words = np.zeros(places[-1] + 1, dtype=np.uint8)
    words[places] = 1
    assert len(encode_words(words)[1]) == min(every_way(words).values())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([0, 17, 250, 99, 200, 31, 143, 77], "dense+raw"),
        ([0, 0, 250, 99, 200, 31, 143, 77], "bitmap+raw"),
    ],
    ids=["dense", "bitmap"],
)
def test_an_index_is_worth_it_only_where_it_saves_a_byte(words: list[int], expected: str) -> None:
    """The bitmap of 8 words takes one byte, as one zero of these does."""
    assert encode_words(np.array(words, dtype=np.uint8))[0] == expected


@pytest.mark.parametrize(("distinct", "has_book"), [(256, True), (257, False)])
def test_a_codebook_holds_256_words(distinct: int, has_book: bool) -> None:
    rng = np.random.default_rng(0)
    words = np.tile(rng.integers(1, 1 << 63, distinct, dtype=np.uint64), 50)
    assert (encode_words(words)[0] == "dense+codebook") == has_book


@pytest.mark.parametrize("zeros", [65_535, 65_536, 65_537, 131_071])
def test_words_far_apart_come_back(zeros: int) -> None:
    words = np.zeros(zeros + 2, dtype=np.uint8)
    words[[0, -1]] = 1, 2
    np.testing.assert_array_equal(back(*encode_words(words), words), words)


def test_many_words_far_apart_come_back() -> None:
    words = np.zeros(3 * (1 << 19), dtype=np.uint8)
    words[::3] = 1
    words[-1] = 2
    codec, payload = encode_words(words)
    assert codec.startswith("runs+")
    np.testing.assert_array_equal(back(codec, payload, words), words)


@pytest.mark.parametrize(("runs", "limit"), [(4, 3), (3, 0), (3, 4096)])
def test_runs_that_no_tensor_of_3_words_has_are_refused(runs: int, limit: int) -> None:
    damaged = varint(runs) + varint(limit) + encode_symbols(np.zeros(runs, dtype=np.uint8))
    with pytest.raises(StorageError, match=f"{runs} runs up to {limit} for 3 weights"):
        decode_words("runs+raw", ByteReader(damaged + bytes(3)), 3, 1)


@pytest.mark.parametrize("limit", [1, 4095])
def test_runs_of_any_limit_up_to_4095_are_read(limit: int) -> None:
    data = varint(3) + varint(limit) + encode_symbols(np.zeros(3, dtype=np.uint8))
    words = decode_words("runs+raw", ByteReader(data + b"\x05\x06\x07"), 3, 1)
    assert words.tolist() == [5, 6, 7]


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


@pytest.mark.parametrize(
    ("cut", "top", "low", "width"),
    [(16, 0, 0, 2), (0, 0, 0, 2), (6, 0, 0, 4), (6, 1 << 10, 0, 2), (6, 0, 1 << 6, 2)],
)
def test_parts_of_split_words_that_cannot_be_are_refused(
    cut: int, top: int, low: int, width: int
) -> None:
    parts = [encode_symbols(np.array([one, 0], dtype=np.uint16)) for one in (top, low)]
    with pytest.raises(StorageError, match="split"):
        decode_words("dense+split", ByteReader(varint(cut) + b"".join(parts)), 2, width)

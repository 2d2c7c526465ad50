"""Files are the same bytes whether numba's loops choose their codecs or numpy does."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest

pytest.importorskip("numba")

from nncfx.storage.codecs import (
    ans,
    frequency_table,
    huffman,
    prefix_code,
    symbol_stream,
    tensor_codecs,
)

ResultT = TypeVar("ResultT")
Both = Callable[[Callable[[], ResultT]], tuple[ResultT, ResultT]]

MODULES = (ans, frequency_table, huffman, prefix_code, symbol_stream)


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Both:
    """Return a call's results with numpy and with compiled loops."""

    def call(function: Callable[[], ResultT]) -> tuple[ResultT, ResultT]:
        results = []
        for is_compiled in (False, True):
            for module in MODULES:
                monkeypatch.setattr(module, "pays_off", lambda _, known=is_compiled: known)
            symbol_stream._best_of.cache_clear()
            results.append(function())
        return results[0], results[1]

    return call


def counts_of(kinds: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    counts = rng.geometric(10.0 ** -rng.uniform(0, 4), kinds) * (rng.random(kinds) < 0.6)
    counts[[0, -1]] += 1
    return counts.astype(np.int64)


COUNTS = pytest.mark.parametrize(
    "counts", [counts_of(kinds, seed) for kinds in (2, 3, 31, 256, 3000) for seed in range(4)]
)


@COUNTS
def test_code_words_have_the_same_lengths_and_table(counts: np.ndarray, both: Both) -> None:
    for limit in (13, 16):
        numpy, loop = both(lambda limit=limit: prefix_code.code_lengths(counts, limit))
        np.testing.assert_array_equal(numpy, loop)
        packed, its = both(lambda lengths=loop: prefix_code.pack_lengths(lengths))
        assert packed == its


@COUNTS
def test_frequencies_and_their_table_are_the_same(counts: np.ndarray, both: Both) -> None:
    numpy, loop = both(lambda: frequency_table.best_frequencies(counts))
    np.testing.assert_array_equal(numpy, loop)
    packed, its = both(lambda: frequency_table.pack_frequencies(loop))
    assert packed == its


@COUNTS
def test_sizes_are_the_same(counts: np.ndarray, both: Both) -> None:
    numpy, loop = both(lambda: huffman.encoded_size(counts))
    assert numpy == loop
    numpy, loop = both(lambda: ans.estimated_size(counts))
    assert loop == pytest.approx(numpy, rel=1e-12)


@pytest.mark.parametrize("count", [2, 2048, 2049, 600_000])
def test_huffman_streams_are_the_same(count: int, both: Both) -> None:
    symbols = np.random.default_rng(0).geometric(0.2, count).astype(np.uint16)
    symbols[0] = 40
    numpy, loop = both(lambda: huffman.encode(symbols))
    assert numpy == loop


@pytest.mark.parametrize("dtype", ["u1", "<u2", "<u4", "<u8"])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.97])
def test_tensors_are_the_same(dtype: str, zeros: float, both: Both) -> None:
    rng = np.random.default_rng(0)
    for width in (0.3, 10, 1000):
        numbers = np.rint(rng.laplace(0, width, 3000)).astype(np.int64)
        words = numbers.astype(dtype.replace("u", "i")).view(dtype)
        words[rng.random(words.size) < zeros] = 0
        numpy, loop = both(lambda words=words: tensor_codecs.encode_words(words))
        assert numpy == loop

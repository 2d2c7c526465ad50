"""Codebooks are exact, and zero is code 0."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nncfx.errors import StorageError
from nncfx.storage.codecs.codebook import from_codes, to_codes

ARRAYS = hnp.arrays(
    dtype=st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.uint32]),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=8),
)


@given(ARRAYS)
def test_values_come_back_bit_for_bit(values: np.ndarray) -> None:
    book = to_codes(values, 600)
    assert book is not None
    assert from_codes(book.codes, book.values).tobytes() == values.tobytes()


def test_zero_has_code_zero_even_where_it_does_not_occur() -> None:
    book = to_codes(np.array([3, 2, 3], dtype=np.uint8))
    assert book is not None
    assert (book.codes.tolist(), book.values.tolist()) == ([2, 1, 2], [0, 2, 3])


def test_minus_zero_is_a_value_of_its_own() -> None:
    book = to_codes(np.array([0.0, -0.0], dtype=np.float32))
    assert book is not None
    assert book.codes.tolist() == [0, 1]


@pytest.mark.parametrize(("distinct", "fits"), [(256, True), (257, False)])
def test_the_limit_counts_distinct_non_zero_values(distinct: int, fits: bool) -> None:
    values = np.arange(distinct + 1, dtype=np.float32)
    assert (to_codes(values) is not None) == fits


def test_values_seen_late_in_a_large_array_are_found() -> None:
    values = np.ones((1 << 21) + 3, dtype=np.float32)
    values[-1] = 0.5  # sorts below, so the codes of all the others change
    book = to_codes(values)
    assert book is not None
    assert book.values.tolist() == [0.0, 0.5, 1.0]
    assert set(book.codes[:-1].tolist()) == {2}
    assert int(book.codes[-1]) == 1


def test_a_code_without_a_value_is_refused() -> None:
    with pytest.raises(StorageError, match="code 2 in a codebook of 2"):
        from_codes(np.array([2], dtype=np.uint16), np.zeros(2))

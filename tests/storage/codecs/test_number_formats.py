"""Narrowing is exact to the bit, or does not happen."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nncfx.errors import StorageError
from nncfx.storage.codecs.number_formats import BitTensor, narrow, widen

FORMATS = {"F32": np.float32, "F64": np.float64, "I16": np.int16, "I32": np.int32, "I64": np.int64}


@given(st.data(), st.sampled_from(sorted(FORMATS)))
def test_narrowed_words_widen_to_the_same_bits(data: st.DataObject, dtype: str) -> None:
    values = data.draw(hnp.arrays(FORMATS[dtype], st.integers(0, 30)))
    words = values.view(f"<u{values.itemsize}")
    narrowed, stored = narrow(words, dtype)
    np.testing.assert_array_equal(widen(narrowed, stored, dtype), words)


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        (np.array([1.5, -0.0, 65504.0, np.inf, 6e-8], np.float16).astype(np.float32), "F16"),
        (torch.tensor([1e30, -3e-30]).bfloat16().float().numpy(), "BF16"),
        (np.array([0.1], np.float32), "F32"),
        (np.array([0.1], np.float32).astype(np.float64), "F32"),
        (np.array([1e300]), "F64"),
        (np.array([-128, 127]), "I8"),
        (np.array([-129]), "I16"),
        (np.array([2**40]), "I64"),
    ],
)
def test_the_smallest_exact_format_is_taken(values: np.ndarray, stored: str) -> None:
    dtype = {"f": "F", "i": "I"}[values.dtype.kind] + str(8 * values.itemsize)
    assert narrow(values.view(f"<u{values.itemsize}"), dtype)[1] == stored


def test_a_value_late_in_a_large_tensor_keeps_it_wide() -> None:
    values = np.ones(10_000, dtype=np.float32)
    values[-1] = 0.1
    assert narrow(values.view("<u4"), "F32")[1] == "F32"


def test_a_format_that_is_not_narrower_is_refused() -> None:
    with pytest.raises(StorageError, match="'I8' numbers for a tensor of 'F32'"):
        widen(np.zeros(1, dtype=np.uint8), "I8", "F32")


def test_words_that_do_not_fill_the_shape_are_refused() -> None:
    with pytest.raises(StorageError, match="not a tensor of format"):
        BitTensor(dtype="F32", shape=(2,), words=np.zeros(3, dtype=np.uint32))

"""Layouts: what is tried for a tensor, and its head."""

import numpy as np
import pytest

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.context_coding.layout import candidates, in_order, read_layout


@pytest.mark.parametrize("kind", [np.int8, np.int32])
def test_a_pruned_tensor_is_sparse_from_its_least_magnitude_on(kind: type) -> None:
    values = np.zeros((20, 20), dtype=kind)
    values[::3, ::4] = 9
    values[0, 0] = -7
    for layout in candidates(values):
        assert (layout.least, layout.rows, layout.columns) == (7, 20, 20)


def test_a_tensor_full_of_small_integers_is_not_sparse() -> None:
    values = np.random.default_rng(0).integers(-2, 3, (20, 20)).astype(np.int8)
    assert {layout.least for layout in candidates(values)} == {0}


def test_a_matrix_that_repeats_itself_has_a_period() -> None:
    rng = np.random.default_rng(1)
    values = np.rint(np.sin(np.arange(280) * np.pi / 14) * 9 + rng.normal(0, 1, (30, 280)))
    assert next(candidates(values.astype(np.int8))).period == 28
    noise = rng.integers(-9, 9, (30, 280)).astype(np.int8)
    assert next(candidates(noise)).period == 1


@pytest.mark.parametrize("shape", [(), (5,), (4, 6), (4, 6, 3, 3), (1, 140_000)])
def test_heads_and_orders_come_back(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(2).integers(-9, 9, shape).astype(np.int8)
    for layout in candidates(values):
        head = layout.packed(shape, wide=False)
        assert read_layout(ByteReader(head), shape) == (layout, False, False)
        assert layout.rows * layout.columns == values.size
        swapped = values.swapaxes(0, 1) if layout.swapped else values
        np.testing.assert_array_equal(in_order(values, layout), list(swapped.flat))


def test_axes_that_are_not_there_cannot_have_changed_places() -> None:
    with pytest.raises(StorageError, match="head of a context-coded"):
        read_layout(ByteReader(b"\1\0"), (7,))

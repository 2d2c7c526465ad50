"""Estimated bits are those that a coder of independent symbols needs, or fewer."""

import numpy as np
import pytest

from nncfx.storage.context_coding.estimate import estimate_bits
from nncfx.storage.context_coding.model import AdaptiveModel


def entropy_bits(values: np.ndarray) -> float:
    _, counts = np.unique(values, return_counts=True)
    return float((counts * np.log2(values.size / counts)).sum())


@pytest.mark.parametrize("spread", [0.4, 2.0, 30.0])
def test_independent_integers_cost_their_entropy(spread: float) -> None:
    values = np.rint(np.random.default_rng(0).laplace(0, spread, (60, 100))).astype(np.int32)
    bits = estimate_bits(values)
    assert bits.shape == values.shape
    assert bits.dtype == np.float32
    assert 0.98 < float(bits.sum()) / entropy_bits(values) < 1.06


def test_rows_and_columns_of_different_size_cost_less_than_shuffled() -> None:
    rng = np.random.default_rng(1)
    scale = np.exp(rng.normal(0, 1, (90, 1))) * np.exp(rng.normal(0, 1, (1, 120)))
    values = np.rint(rng.laplace(0, 2, (90, 120)) * scale).astype(np.int16)
    shuffled = rng.permutation(values.reshape(-1)).reshape(values.shape)
    assert estimate_bits(values).sum() < 0.94 * estimate_bits(shuffled).sum()


def test_a_rare_integer_costs_more_than_a_frequent_one() -> None:
    values = np.where(np.random.default_rng(2).random((40, 90)) < 0.05, 7, 0).astype(np.int8)
    bits = estimate_bits(values)
    assert bits[values == 7].mean() > 4
    assert bits[values == 0].mean() < 0.2


def test_what_a_model_has_learnt_makes_the_next_tensor_cheaper() -> None:
    values = np.random.default_rng(3).choice([-5, 0, 9], (30, 30)).astype(np.int32)
    model = AdaptiveModel()
    first = estimate_bits(values, model).sum()
    assert estimate_bits(values, model).sum() < 0.95 * first


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0, 2), (2, 3, 5), (4, 2, 3, 3)])
def test_tensors_of_every_shape_have_costs(shape: tuple[int, ...]) -> None:
    assert estimate_bits(np.ones(shape, dtype=np.int64)).shape == shape


def test_integers_of_four_bytes_have_costs() -> None:
    values = np.array([[2**31 - 1, -(2**31), 0]], dtype=np.int64)
    assert estimate_bits(values).max() < 80

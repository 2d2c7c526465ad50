"""How a row is read."""

import pytest

from nncfx.operators import operator_of
from nncfx.operators.operator import row, rows


@pytest.mark.parametrize(
    ("function", "factors"),
    [
        *[("linear", (0, 1)), ("bmm", (0, 1)), ("einsum", (0, 1)), ("bilinear", (0, 1))],
        *[("addmm", (1, 2)), ("baddbmm", (1, 2)), ("embedding", (1,)), ("sigmoid", (0,))],
    ],
)
def test_factors_are_what_is_multiplied(function: str, factors: tuple[int, ...]) -> None:
    assert operator_of(function).factors == factors


def test_matrices_and_tables_are_weights_and_scales_of_norms_are_none() -> None:
    weighted = ["bilinear", "einsum", "embedding_bag", "linalg_matmul", "_grouped_mm", "lstm"]
    assert all(operator_of(one).has_weight for one in weighted)
    others = ["layer_norm", "sigmoid", "scaled_dot_product_attention", "fft_fft"]
    assert not any(operator_of(one).has_weight for one in others)


def test_a_row_without_a_kind_says_why_it_stays_in_float() -> None:
    assert row("fold").in_float
    assert not row("fold", kind="view").in_float
    assert row("fold", kind="view", in_float="it adds").in_float == "it adds"


def test_operators_have_no_changing_form() -> None:
    (one,) = rows("pow __pow__")
    assert one.functions == ("pow", "pow_", "_pow", "__pow__")

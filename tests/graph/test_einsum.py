"""Promises of nncfx.graph.einsum; expected counts are worked out by hand in each case."""

import pytest

from nncfx.graph.einsum import einsum_macs


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        # a batch of 2 products of 3x4 by 4x5
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)], 2 * 3 * 4 * 5),
        ("b i j, b j k", [(2, 3, 4), (2, 4, 5)], 2 * 3 * 4 * 5),
        # attention's scores, the batch axes by dots
        ("...qd,...kd->...qk", [(2, 3, 5, 7), (2, 3, 6, 7)], 2 * 3 * 5 * 6 * 7),
        # dots that broadcast: the second operand has no batch
        ("...i,ij->...j", [(2, 3, 4), (4, 5)], 2 * 3 * 4 * 5),
        # an outer product
        ("i,j->ij", [(3,), (4,)], 12),
        # j is in one operand only: summed first, then 3 products
        ("ij,i->i", [(3, 4), (3,)], 3),
        # (3x4)(4x5) makes 3x5, then (3x5)(5x2)
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)], 3 * 4 * 5 + 3 * 5 * 2),
        # one operand multiplies nothing
        ("ij->ji", [(3, 4)], 0),
        ("ii->i", [(3, 3)], 0),
    ],
)
def test_an_einsum_counts_its_products(
    equation: str, shapes: list[tuple[int, ...]], expected: int
) -> None:
    assert einsum_macs(equation, shapes) == expected

"""Promises of nncfx.graph.einsum; expected counts are worked out by hand in each case."""

import numpy as np
import pytest

from nncfx.graph.einsum import einsum_macs, matrix_product


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


PRODUCTS = {
    "attention's scores": ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)], "bh", "i", "d", "j"),
    "heads behind positions": (
        "bihd,bjhd->bhij",
        [(2, 4, 3, 5), (2, 6, 3, 5)],
        "bh",
        "i",
        "d",
        "j",
    ),
    "a linear layer": ("bnc,chd->bnhd", [(2, 3, 4), (4, 5, 6)], "", "bn", "c", "hd"),
    "of several axes": ("bnhd,hdc->bnc", [(2, 3, 4, 5), (4, 5, 6)], "", "bn", "hd", "c"),
    "spaces, the result turned": ("b i d , d o -> b o i", [(2, 3, 4), (4, 5)], "", "bi", "d", "o"),
    "dots": ("...qd,...kd->...qk", [(2, 3, 5, 7), (2, 3, 6, 7)], "21", "q", "d", "k"),
    "dots of one operand": ("...i,ij->...j", [(2, 3, 4), (4, 5)], "", "21", "i", "j"),
    "without an arrow": ("ij,jk", [(2, 3), (3, 4)], "", "i", "j", "k"),
    "with a vector": ("bnc,c->bn", [(2, 3, 4), (4,)], "", "bn", "c", ""),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_a_matrix_product_is_known_by_its_indices(case: str) -> None:
    equation, shapes, *indices = PRODUCTS[case]
    found = matrix_product(equation, [len(one) for one in shapes])
    assert found is not None
    parts = (found.batch, found.left, found.summed, found.right)
    assert ["".join(one) for one in parts] == indices
    # computed from the indices alone, with numpy's product of matrices
    one, other = (np.random.default_rng(0).random(shape) for shape in shapes)
    extents = dict(
        zip((*found.operands[0], *found.operands[1]), (*one.shape, *other.shape), strict=True)
    )
    batch, left, summed, right = ([extents[each] for each in part] for part in parts)
    first = one.transpose([found.operands[0].index(each) for part in parts[:3] for each in part])
    second = other.transpose(
        [found.operands[1].index(each) for part in (parts[0], *parts[2:]) for each in part]
    )
    sizes = [int(np.prod(part)) for part in (left, summed, right)]
    matrices = first.reshape(*batch, *sizes[:2]) @ second.reshape(*batch, *sizes[1:])
    whole = matrices.reshape(*batch, *left, *right)
    order = [*found.batch, *found.left, *found.right]
    result = whole.transpose([order.index(each) for each in found.output])
    np.testing.assert_allclose(result, np.einsum(equation, one, other))


@pytest.mark.parametrize(
    ("equation", "ranks"),
    [
        ("i,j->ij", (1, 1)),  # an outer product
        ("bi,bi->bi", (2, 2)),  # elementwise
        ("ij->ji", (2,)),
        ("ij,jk,kl->il", (2, 2, 2)),
        ("ii,ij->ij", (2, 2)),  # a diagonal
        ("ijk,jl->il", (3, 2)),  # k is summed in one operand alone
    ],
)
def test_other_einsums_are_no_matrix_product(equation: str, ranks: tuple[int, ...]) -> None:
    assert matrix_product(equation, ranks) is None

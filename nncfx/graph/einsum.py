"""Analyze einsums: count multiply-accumulates and recognize matrix products."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, kw_only=True)
class MatrixProduct:
    """An einsum of two operands that is a matrix product, or a batch of them.

    Each index is one axis, named by its letter, or by a number if `...` covers it.

    Attributes:
        operands: The indices of the two operands, in order.
        output: The indices of the output, in order.
        batch: Indices of both operands and the output.
        left: Indices of the first operand and the output.
        summed: Indices of both operands but not the output.
        right: Indices of the second operand and the output.
    """

    operands: tuple[tuple[str, ...], tuple[str, ...]]
    output: tuple[str, ...]
    batch: tuple[str, ...]
    left: tuple[str, ...]
    summed: tuple[str, ...]
    right: tuple[str, ...]


def matrix_product(equation: str, ranks: Sequence[int]) -> MatrixProduct | None:
    """Return the matrix product that an einsum computes, or None.

    None if it does not have two operands, sums over no shared index (an outer or elementwise
    product), takes a diagonal, or sums over an index that only one operand has.

    Args:
        equation: As written for `torch.einsum`.
        ranks: How many axes each operand has.

    >>> matrix_product("bhid,bhjd->bhij", (4, 4)).summed
    ('d',)
    >>> matrix_product("i,j->ij", (1, 1)) is None
    True
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != 2 or len(ranks) != 2:  # noqa: PLR2004 (operands)
        return None
    one, other = (_indices(term, rank) for term, rank in zip(terms, ranks, strict=True))
    hidden = sorted({each for each in (*one, *other) if each.isdigit()}, key=int, reverse=True)
    if arrow:
        before, dots, after = right.partition("...")
        output = [*before, *(hidden if dots else ()), *after]
    else:
        single = _implicit([one, other])
        output = [*hidden, *sorted(each for each in single if not each.isdigit())]
    if any(len(set(each)) < len(each) for each in (one, other, output)):
        return None
    of_output = set(output)
    product = MatrixProduct(
        operands=(tuple(one), tuple(other)),
        output=tuple(output),
        batch=tuple(each for each in one if each in other and each in of_output),
        left=tuple(each for each in one if each not in other),
        summed=tuple(each for each in one if each in other and each not in of_output),
        right=tuple(each for each in other if each not in one),
    )
    is_whole = of_output.issuperset((*product.left, *product.right))
    return product if is_whole and product.summed else None


def einsum_macs(equation: str, shapes: Sequence[Sequence[int]]) -> int:
    """Return the multiply-accumulates of contracting the operands left to right, as torch does.

    An index of only one operand that is not in the output is summed before any product and counts
    nothing. An einsum of one operand counts 0. Axes covered by `...` are aligned at the right.

    >>> einsum_macs("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)])
    120
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = [
        _indices(term, len(shape)) for term, shape in zip(left.split(","), shapes, strict=True)
    ]
    extents: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for index, extent in zip(term, shape, strict=True):
            extents[index] = max(extents.get(index, 1), extent)
    sets = [frozenset(term) for term in terms]
    output = _output(right, extents) if arrow else _implicit(terms)
    return _contracted(sets, output, extents)


def _indices(term: str, axes: int) -> list[str]:
    """Return one name per axis; axes covered by `...` are numbered from the right."""
    before, dots, after = term.partition("...")
    hidden = axes - len(before) - len(after) if dots else 0
    return [*before, *(str(number) for number in range(hidden, 0, -1)), *after]


def _output(term: str, extents: Iterable[str]) -> frozenset[str]:
    hidden = (one for one in extents if one.isdigit()) if "..." in term else ()
    return frozenset((*term.replace("...", ""), *hidden))


def _implicit(terms: Sequence[Sequence[str]]) -> frozenset[str]:
    every = [index for term in terms for index in term]
    return frozenset(one for one in every if one.isdigit() or every.count(one) == 1)


def _contracted(
    terms: Sequence[frozenset[str]], output: frozenset[str], extents: Mapping[str, int]
) -> int:
    total, result = 0, terms[0]
    for position, term in enumerate(terms[1:], 1):
        needed = output.union(*terms[position + 1 :])
        product = (result & (term | needed)) | (term & (result | needed))
        total += prod(extents[index] for index in product)
        result = product & needed
    return total

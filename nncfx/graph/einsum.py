"""Multiply-accumulates of an einsum, from its equation and the shapes of its operands."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod

__all__ = ["einsum_macs"]


def einsum_macs(equation: str, shapes: Sequence[Sequence[int]]) -> int:
    """Return the multiply-accumulates of contracting the operands left to right, as torch does.

    An index that only one operand has, and the output has not, is summed before any product and
    counts nothing; so does an einsum of one operand. `...` stands for axes aligned at the right.

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
    """Return one name per axis; those that `...` stands for are numbered from the right."""
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

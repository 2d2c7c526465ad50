"""PQ-trees: which orders keep given sets contiguous."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.errors import ArgumentError
from nncfx.graph.consecutive_ones import (
    PQTree,
    contiguous_tree,
    elements_of,
    frontier,
    restricted,
    universal,
)
from orders import consecutive_order

Order = tuple[int, ...]


@st.composite
def families(draw: st.DrawFn, most: int = 7) -> tuple[int, list[int]]:
    """Draw a number of elements, and up to five bit sets of them."""
    count = draw(st.integers(1, most))
    return count, draw(st.lists(st.integers(0, 2**count - 1), max_size=5))


def is_contiguous(order: Order, members: int) -> bool:
    places = [place for place, element in enumerate(order) if members >> element & 1]
    return not places or places[-1] - places[0] + 1 == len(places)


def admissible(count: int, sets: list[int]) -> set[Order]:
    """Return every order that keeps all sets contiguous, by trying each permutation."""
    orders = itertools.permutations(range(count))
    return {order for order in orders if all(is_contiguous(order, s) for s in sets)}


def orders_of(tree: PQTree) -> Iterator[Order]:
    """Yield every order that a tree stands for."""
    if not tree.children:
        yield from itertools.permutations(elements_of(tree.single))
        return
    parts = [*tree.children, *(universal(1 << e) for e in elements_of(tree.single))]
    rows = (parts, parts[::-1]) if tree.is_rigid else itertools.permutations(parts)
    for row in rows:
        for inner in itertools.product(*(list(orders_of(part)) for part in row)):
            yield tuple(itertools.chain(*inner))


@given(families())
def test_an_order_is_found_exactly_when_brute_force_finds_one(
    family: tuple[int, list[int]],
) -> None:
    count, sets = family
    order = consecutive_order([*sets, 2**count - 1])
    expected = admissible(count, sets)
    assert (tuple(order) in expected) if order is not None else not expected


@given(families(most=6))
def test_the_tree_stands_for_every_admissible_order_each_once(
    family: tuple[int, list[int]],
) -> None:
    count, sets = family
    expected = admissible(count, sets)
    if expected:
        orders = list(orders_of(contiguous_tree(2**count - 1, sets)))
        assert len(orders) == len(set(orders))
        assert set(orders) == expected


@given(families())
def test_the_frontier_ascends_exactly_when_the_ascending_order_is_admissible(
    family: tuple[int, list[int]],
) -> None:
    count, sets = family
    ascending = tuple(range(count))
    if admissible(count, sets):
        first = tuple(frontier(contiguous_tree(2**count - 1, sets)))
        assert (first == ascending) == all(is_contiguous(ascending, s) for s in sets)


def test_restricting_leaves_the_argument_as_it_was() -> None:
    tree = contiguous_tree(0b111111, [0b000111, 0b001110])
    copy = contiguous_tree(0b111111, [0b000111, 0b001110])
    restricted(tree, 0b110000)
    assert tree == copy


@pytest.mark.parametrize("members", [0, 0b100, 0b1111])
def test_no_one_and_all_elements_restrict_nothing(members: int) -> None:
    tree = contiguous_tree(0b1111, [0b0011])
    assert restricted(tree, members) is tree


# The smallest members of the five families of A. Tucker (1972): minimal without the property.
TUCKER = {
    "I(1), a ring": [0b011, 0b110, 0b101],
    "I(2), a ring of four": [0b0011, 0b0110, 0b1100, 0b1001],
    "II(1)": [0b0011, 0b0110, 0b1011, 0b1110],
    "III(1), a claw": [0b1001, 0b1010, 0b1100],
    "IV": [0b000011, 0b001100, 0b110000, 0b101010],
    "V": [0b00011, 0b01100, 0b01111, 0b11001],
}


@pytest.mark.parametrize("sets", TUCKER.values(), ids=TUCKER.keys())
def test_obstructions_of_tucker_have_no_order_but_have_one_less_any_set(sets: list[int]) -> None:
    assert consecutive_order(sets) is None
    for left_out in range(len(sets)):
        assert consecutive_order(sets[:left_out] + sets[left_out + 1 :]) is not None


def test_a_thousand_nested_sets_need_no_recursion() -> None:
    nested = [(1 << end) - 1 for end in range(1, 1500)]
    assert consecutive_order(nested) == list(range(1499))
    # One more set, which reaches down to the innermost.
    assert consecutive_order([*nested, (1 << 1500) - 2]) == list(range(1500))


def test_sets_that_cannot_be_contiguous_are_refused_by_position() -> None:
    with pytest.raises(ArgumentError) as raised:
        contiguous_tree(0b111, [0b011, 0b110, 0b101])
    assert str(raised.value) == (
        "No order keeps sets 0 ... 2 contiguous together: they lack the consecutive-ones "
        "property. Leave out set 2 (0b101), or let contiguous_subset choose which to leave out."
    )

"""Spaces are ordered so that their readers find their channels side by side."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nncfx.errors import ArgumentError
from nncfx.reorder.segments import ChannelBlock, Reader, segment_orders

A, B, C = ChannelBlock("a", 4), ChannelBlock("b", 3), ChannelBlock("c", 2)


def reader(
    blocks: tuple[ChannelBlock, ...], keep: set[tuple[str, int]], cost: float = 1.0
) -> Reader:
    return Reader(blocks=blocks, keep=frozenset(keep), cost=cost)


def is_contiguous(one: Reader, orders: dict[str, list[int]]) -> bool:
    read = [
        (space, channel) in one.keep
        for space, size in one.blocks
        for channel in orders.get(space, range(size))
    ]
    places = [place for place, kept in enumerate(read) if kept]
    return not places or places[-1] - places[0] + 1 == len(places)


def test_a_space_that_copies_nothing_is_left_alone() -> None:
    assert segment_orders([reader((A,), {("a", 1), ("a", 2)})]) == {}


def test_a_slice_reaches_from_one_space_into_the_next() -> None:
    readers = [reader((A, B), {("a", 0), ("a", 2), ("b", 1)}), reader((A,), {("a", 0), ("a", 1)})]
    orders = segment_orders(readers)
    assert all(is_contiguous(one, orders) for one in readers)


def test_the_cheaper_of_two_that_disagree_is_the_one_that_copies() -> None:
    ring = [{("a", 0), ("a", 1)}, {("a", 1), ("a", 2)}, {("a", 2), ("a", 0)}]
    for dear in range(3):
        readers = [reader((A,), keep, 9.0 if n == dear else 1.0) for n, keep in enumerate(ring)]
        assert is_contiguous(readers[dear], segment_orders(readers))


def test_a_reader_of_another_arrangement_does_not_disturb_the_others() -> None:
    fitting = reader((A, B, C), {("a", 1), ("a", 3), ("b", 0), ("b", 1), ("b", 2), ("c", 1)})
    other = reader((C, A), {("c", 0), ("a", 0)})
    assert is_contiguous(fitting, segment_orders([other, fitting]))


def test_a_space_of_one_channel_holds_its_place() -> None:
    fixed = [ChannelBlock(f"x[{n}]", 1) for n in range(3)]
    one = reader((*fixed, A), {("x[2]", 0), ("a", 1), ("a", 2)})
    orders = segment_orders([one])
    assert set(orders) == {"a"}
    assert is_contiguous(one, orders)


def test_spaces_keep_their_arrangement_whatever_the_keeps() -> None:
    # the last space's channels are the smallest ids' natural neighbours in the mirror
    one = reader((A, B), {("a", 3), ("b", 0)})
    other = reader((A, B), {("b", 2), ("b", 1)})
    orders = segment_orders([one, other])
    assert is_contiguous(one, orders)
    assert is_contiguous(other, orders)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(1, 3), st.sets(st.integers(0, 8)), st.integers(1, 5)
        ),
        min_size=1,
        max_size=5,
    )
)
def test_orders_are_permutations(drawn: list[tuple[int, int, set[int], int]]) -> None:
    line = (A, B, C)
    readers = []
    for start, length, picks, cost in drawn:
        blocks = line[start : start + length]
        every = [(space, channel) for space, size in blocks for channel in range(size)]
        readers.append(reader(blocks, {every[p] for p in picks if p < len(every)}, cost))
    sizes = dict(line)
    for space, order in segment_orders(readers).items():
        assert sorted(order) == list(range(sizes[space]))


def test_a_space_of_two_sizes_is_refused() -> None:
    readers = [reader((A,), {("a", 0)}), reader((ChannelBlock("a", 5),), {("a", 4)})]
    with pytest.raises(
        ArgumentError, match=r"'a' has 4 channels for one reader and 5 for another"
    ):
        segment_orders(readers)


def test_a_channel_that_is_not_read_cannot_be_needed() -> None:
    with pytest.raises(ArgumentError, match="A reader of a needs channel 4 of 'a'"):
        segment_orders([reader((A,), {("a", 4)})])
    with pytest.raises(ArgumentError, match="needs channel 0 of 'b'"):
        segment_orders([reader((A,), {("b", 0)})])

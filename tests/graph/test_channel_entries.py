"""Promises of nncfx.graph.channel_entries."""

import dataclasses

import numpy as np
import pytest

from nncfx.graph.channel_entries import entries_of
from nncfx.graph.channels import Channels, GroupSet, Member, Role


def member(parameter: str, axis: int, rows: list[list[int]], *, is_buffer: bool = False) -> Member:
    return Member(
        parameter=parameter,
        axis=axis,
        indices=np.array(rows),
        role=Role.CONSUMER if axis else Role.PRODUCER,
        is_buffer=is_buffer,
    )


@pytest.fixture
def channels() -> Channels:
    """Return two sets that one layer reads, the first with two entries a group."""
    first = GroupSet(
        name="a",
        size=3,
        members=(
            member("a.weight", 0, [[0], [1], [2]]),
            member("norm.mean", 0, [[0], [1], [2]], is_buffer=True),
            member("c.weight", 1, [[4, 5], [2, 3], [6, 7]]),
        ),
    )
    rows = [[0], [1]]
    second = GroupSet(
        name="b", size=2, members=(member("b.weight", 0, rows), member("c.weight", 1, rows))
    )
    return Channels((first, second))


def test_entries_of_an_axis_come_from_every_set_in_ascending_order(channels: Channels) -> None:
    """By hand: groups 0 and 2 of `a` are columns 4 to 7 of `c`, group 1 of `b` is column 1."""
    groups = {"a": np.array([0, 2]), "b": np.array([1])}
    found = {key: one.tolist() for key, one in entries_of(channels, groups).items()}
    assert found == {
        ("a.weight", 0): [0, 2],
        ("norm.mean", 0): [0, 2],
        ("c.weight", 1): [1, 4, 5, 6, 7],
        ("b.weight", 0): [1],
    }


def test_sets_of_which_nothing_is_chosen_and_buffers_may_be_left_out(channels: Channels) -> None:
    found = entries_of(channels, {"a": np.array([1])}, zeroed=True)
    assert {key: one.tolist() for key, one in found.items()} == {
        ("a.weight", 0): [1],
        ("c.weight", 1): [2, 3],
    }


def test_an_entry_that_two_members_have_comes_once() -> None:
    both = (member("a.weight", 0, [[0], [1]]), member("a.weight", 0, [[1], [0]]))
    found = entries_of(Channels((GroupSet(name="a", size=2, members=both),)), {"a": np.array([0])})
    assert found["a.weight", 0].tolist() == [0, 1]


def test_rows_that_are_divided_are_removed_but_not_set_to_zero() -> None:
    divided = dataclasses.replace(member("a.weight", 0, [[0], [1]]), is_divided=True)
    channels = Channels((GroupSet(name="a", size=2, members=(divided,)),))
    groups = {"a": np.array([1])}
    assert entries_of(channels, groups)["a.weight", 0].tolist() == [1]
    assert entries_of(channels, groups, zeroed=True) == {}

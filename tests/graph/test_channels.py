"""What a group set promises to the code that prunes it."""

import numpy as np
import pytest

from nncfx.errors import ArgumentError, GraphError
from nncfx.graph.channels import Channels, GroupSet, Member, Role, Width


def member(parameter: str, rows: list[list[int]], role: Role = Role.PRODUCER) -> Member:
    return Member(parameter=parameter, axis=0, indices=np.array(rows), role=role)


def chain() -> Channels:
    producer = member("conv.weight", [[0], [1]])
    consumer = member("fc.weight", [[0, 1], [2, 3]], Role.CONSUMER)
    output = member("fc.weight", [[0], [1], [2]])
    return Channels(
        (
            GroupSet(name="conv", size=2, members=(producer, consumer)),
            GroupSet(name="fc", size=3, members=(output,), fixed="an output of the model"),
        )
    )


def test_entries_of_chosen_groups_come_in_ascending_order() -> None:
    interleaved = member("fc.weight", [[0, 3], [1, 4], [2, 5]])
    assert interleaved.entries([2, 0]).tolist() == [0, 2, 3, 5]


def test_no_groups_have_no_entries() -> None:
    assert member("conv.weight", [[0], [1]]).entries([]).tolist() == []


def test_indices_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        member("conv.weight", [[0]]).indices[0] = 1


def test_counts_are_a_copy_that_cannot_be_written() -> None:
    counts = np.array([1, 1])
    width = Width(module="attention", attribute="num_heads", counts=counts)
    counts[0] = 7
    assert width.counts.tolist() == [1, 1]
    with pytest.raises(ValueError, match="read-only"):
        width.counts[0] = 7


def test_indices_that_are_read_only_are_held_without_a_copy() -> None:
    indices = np.array([[0], [1]])
    indices.flags.writeable = False
    found = Member(parameter="conv.weight", axis=0, indices=indices, role=Role.PRODUCER)
    assert found.indices is indices


def test_indices_have_one_row_per_group() -> None:
    with pytest.raises(ArgumentError, match=r"indices of 'conv.weight' have the shape \(2,\)"):
        Member(parameter="conv.weight", axis=0, indices=np.arange(2), role=Role.PRODUCER)


def test_every_member_lists_every_group() -> None:
    with pytest.raises(ArgumentError, match=r"'a.weight' lists 1 groups of 'a', which has 2"):
        GroupSet(name="a", size=2, members=(member("a.weight", [[0]]),))


def test_prunable_sets_are_those_without_a_reason() -> None:
    assert [group_set.name for group_set in chain().prunable] == ["conv"]


def test_fixed_sets_come_with_their_reason() -> None:
    assert dict(chain().fixed) == {"fc": "an output of the model"}


def test_members_are_found_by_role() -> None:
    consumers = chain().find("conv").by_role(Role.CONSUMER)
    assert [found.parameter for found in consumers] == ["fc.weight"]


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(GraphError, match=r"No channels at 'conx'. Did you mean 'conv'\?"):
        chain().find("conx")


def test_two_sets_cannot_have_one_name() -> None:
    only = GroupSet(name="a", size=1, members=())
    with pytest.raises(ArgumentError, match="2 group sets are named 'a'"):
        Channels((only, only))


def test_the_table_has_one_line_per_set_with_its_verdict() -> None:
    lines = str(chain()).splitlines()
    assert lines[0].split() == [
        "channels",
        "groups",
        "producers",
        "followers",
        "consumers",
        "removable",
    ]
    assert lines[1].split() == ["conv", "2", "1", "0", "1", "yes"]
    assert lines[2].endswith("no: an output of the model")


def test_a_model_without_channels_has_an_empty_table() -> None:
    assert len(str(Channels()).splitlines()) == 1


def test_the_origin_of_a_set_is_what_creates_its_channels() -> None:
    """Producers come before followers, and followers before consumers, wherever they stand."""
    consumer = member("fc.weight", [[0], [1]], Role.CONSUMER)
    follower = member("norm.weight", [[0], [1]], Role.FOLLOWER)
    producer = member("conv.weight", [[0], [1]])
    made = GroupSet(name="made", size=2, members=(consumer, follower, producer))
    given = GroupSet(name="given", size=2, members=(consumer, follower))
    assert made.origin is producer
    assert given.origin is follower


def test_the_table_of_sets_has_its_columns_below_one_another() -> None:
    members = (Member(parameter="w", axis=0, indices=np.array([[0]]), role=Role.PRODUCER),)
    names = ("a", "a name longer than its title")
    channels = Channels(tuple(GroupSet(name=name, size=1, members=members) for name in names))
    title, *rows = str(channels).splitlines()
    assert [row[title.index("groups")] for row in rows] == ["1", "1"]
    assert [row[title.index("removable") :] for row in rows] == ["yes", "yes"]

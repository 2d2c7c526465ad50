"""Groups with equal members make one set, in the order in which they are met."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nncfx.channels.grouping import Notes, grouped
from nncfx.channels.ids import NO_CHANNEL
from nncfx.graph.channels import Role

PRODUCER, CONSUMER = [Role.PRODUCER], [Role.CONSUMER]


def notes(carriers: dict[str, list[int]], **others: object) -> Notes:
    axes = {(name, 0): np.array(ids) for name, ids in carriers.items()}
    roles = {key: CONSUMER if key[0].startswith("read") else PRODUCER for key in axes}
    given = {"widths": {}, "averages": {}, "reasons": {}} | others
    return Notes(count=20, carriers=axes, roles=roles, **given)  # type: ignore[arg-type] (by name)


def found(notes: Notes) -> list[tuple[str, list[list[list[int]]]]]:
    sets = grouped(notes, frozenset())
    return [(one.name, [member.indices.tolist() for member in one.members]) for one in sets]


def test_a_channel_with_more_entries_is_of_another_set() -> None:
    result = found(notes({"a": [7, 8], "read": [7, 7, 8]}))
    assert result == [("a", [[[0]], [[0, 1]]]), ("a#2", [[[1]], [[2]]])]


def test_groups_are_in_order_of_appearance_not_of_number() -> None:
    assert found(notes({"a": [9, 3, 5], "read": [3, 5, 9]})) == [
        ("a", [[[0], [1], [2]], [[2], [0], [1]]])
    ]


def test_constants_are_in_no_group() -> None:
    assert found(notes({"a": [4], "b": [NO_CHANNEL, 4]})) == [("a", [[[0]], [[1]]])]


def test_a_width_that_counts_channels_that_nothing_carries_is_left_out() -> None:
    counted = {("module", "width"): np.array([1, 19])}
    (one,) = grouped(notes({"a": [1]}, widths=counted), frozenset())
    assert [(w.module, w.attribute, w.counts.tolist()) for w in one.widths] == [
        ("module", "width", [1])
    ]


def test_without_carriers_there_are_no_sets() -> None:
    assert len(grouped(notes({}), frozenset())) == 0


@given(st.lists(st.lists(st.integers(-1, 9), min_size=1, max_size=8), min_size=1, max_size=5))
def test_sets_are_those_of_the_slow_obvious_way(ids: list[list[int]]) -> None:
    carriers = {
        f"{'read' if number % 2 else 'make'}{number}": one for number, one in enumerate(ids)
    }
    signatures: dict[int, dict[str, list[int]]] = {}
    for name, channels in carriers.items():
        for entry, channel in enumerate(channels):
            if channel != NO_CHANNEL:
                signatures.setdefault(channel, {}).setdefault(name, []).append(entry)
    alike: dict[tuple[object, ...], list[dict[str, list[int]]]] = {}
    for entries in signatures.values():
        if any(name.startswith("make") for name in entries):
            alike.setdefault(tuple((k, len(v)) for k, v in entries.items()), []).append(entries)
    expected = [
        [[group[name] for group in groups] for name in groups[0]] for groups in alike.values()
    ]
    assert [members for _, members in found(notes(carriers))] == expected


def test_a_set_is_held_by_a_call_that_is_given_the_number_of_its_channels() -> None:
    """Padding that lies among the channels has none."""
    held = {"Net/view_0": np.array([1, 2, NO_CHANNEL]), "Net/view_1": np.array([2])}
    sets = grouped(notes({"a": [1, 2], "b": [3], "c": [1, 2]}, held=held), frozenset())
    assert [(one.name, one.held) for one in sets] == [("a", "Net/view_0"), ("b", None)]


def test_members_tell_whether_they_are_divided_by_their_length() -> None:
    divided = frozenset([("b", 0)])
    (one,) = grouped(notes({"a": [1], "b": [1]}, divided=divided), frozenset())
    assert [(m.parameter, m.is_divided) for m in one.members] == [("a", False), ("b", True)]

"""Which channels are dead, and how many of them may go."""

import numpy as np
import pytest
import torch

from nncfx.graph.channels import Channels, GroupSet, Member, Role
from nncfx.schemes.masks.alignment import Alignment
from nncfx.thinning.selection import Zeros, dead_groups, select_removable


def member(parameter: str, axis: int, rows: list[list[int]], role: Role) -> Member:
    return Member(parameter=parameter, axis=axis, indices=np.array(rows), role=role)


def group_set(size: int, *, entries: int = 1, fixed: str | None = None) -> GroupSet:
    rows = np.arange(size * entries).reshape(size, entries).tolist()
    producer = member("a.weight", 0, [[index] for index in range(size)], Role.PRODUCER)
    consumer = member("b.weight", 1, rows, Role.CONSUMER)
    return GroupSet(name="a", size=size, members=(producer, consumer), fixed=fixed)


def tensors(size: int, zero: list[int]) -> dict[str, torch.Tensor]:
    weight = torch.ones(2, size)
    weight[:, zero] = 0
    return {"a.weight": torch.ones(size, 3), "b.weight": weight}


def test_a_group_is_dead_if_all_its_columns_are_zero() -> None:
    found = dead_groups(group_set(2, entries=2), Zeros(tensors(4, [0, 2, 3])))
    assert found.tolist() == [1]


def test_a_group_that_one_of_two_consumers_reads_is_alive() -> None:
    one = group_set(3)
    second = member("c.weight", 1, [[0], [1], [2]], Role.CONSUMER)
    both = GroupSet(name="a", size=3, members=(*one.members, second))
    weights = {**tensors(3, [0, 1]), "c.weight": torch.tensor([[0.0, 1.0, 0.0]])}
    assert dead_groups(both, Zeros(weights)).tolist() == [0]


def test_nan_and_minus_zero_are_told_apart() -> None:
    weights = tensors(2, [])
    weights["b.weight"][:, 0] = torch.nan
    weights["b.weight"][:, 1] = -0.0
    assert dead_groups(group_set(2), Zeros(weights)).tolist() == [1]


def test_what_nobody_is_seen_to_read_is_not_dead() -> None:
    unread = GroupSet(name="a", size=3, members=group_set(3).members[:1])
    assert dead_groups(unread, Zeros(tensors(3, []))).tolist() == []


@pytest.mark.parametrize(
    ("size", "zero", "align", "gone"),
    [
        (8, [1, 3], 1, [1, 3]),
        (8, [1, 3, 5], 2, [3, 5]),
        (8, [1, 3], 4, []),
        (8, [0, 1, 2, 3, 4], 4, [1, 2, 3, 4]),
        (4, [0, 1, 2, 3], 1, [1, 2, 3]),
        (6, [0, 1, 2], 4, [1, 2]),
    ],
)
def test_dead_groups_with_the_lowest_numbers_stay_for_the_width(
    size: int, zero: list[int], align: int, gone: list[int]
) -> None:
    found = select_removable(Channels((group_set(size),)), tensors(size, zero), Alignment(align))
    assert found.groups.get("a", np.array([])).tolist() == gone
    assert ("a" in found.kept) == (len(gone) < len(zero))


def test_fixed_groups_stay_with_their_reason_if_some_are_dead() -> None:
    fixed = Channels((group_set(3, fixed="because"),))
    assert select_removable(fixed, tensors(3, [1]), Alignment(1)).kept == {"a": "because"}
    assert select_removable(fixed, tensors(3, []), Alignment(1)).kept == {}


def test_sets_of_one_space_are_aligned_together() -> None:
    first = GroupSet(
        name="a",
        size=2,
        members=(
            member("a.weight", 0, [[0], [1]], Role.PRODUCER),
            member("b.weight", 1, [[0], [1]], Role.CONSUMER),
        ),
    )
    second = GroupSet(
        name="a#2",
        size=4,
        members=(
            member("a.weight", 0, [[2], [3], [4], [5]], Role.PRODUCER),
            member("b.weight", 1, [[2], [3], [4], [5]], Role.CONSUMER),
        ),
    )
    found = select_removable(Channels((first, second)), tensors(6, [0, 1, 2]), Alignment(2))
    assert sum(len(groups) for groups in found.groups.values()) == 2


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("entry", [0, 7, 8, 29])
def test_one_entry_anywhere_keeps_a_channel_alive(axis: int, entry: int) -> None:
    weight = torch.zeros(30, 30, 2)
    index = (3, entry, 1) if axis == 0 else (entry, 3, 1)
    weight[index] = 1e-30
    rows = np.arange(30)[:, None]
    read = Member(parameter="w", axis=axis, indices=rows, role=Role.CONSUMER)
    dead = dead_groups(GroupSet(name="s", size=30, members=(read,)), Zeros({"w": weight}))
    assert dead.tolist() == [one for one in range(30) if one != 3]


@pytest.mark.parametrize(
    ("dtype", "least"),
    [
        (torch.float64, 5e-324),
        (torch.float32, 1e-45),
        (torch.bfloat16, 1e-40),
        (torch.float16, 6e-8),
        (torch.float32, float("nan")),
        (torch.complex64, 1e-45j),
        (torch.int8, -1),
    ],
)
def test_only_zeros_of_either_sign_are_dead_in_every_type(
    dtype: torch.dtype, least: complex
) -> None:
    weight = torch.zeros(2, 3).to(dtype)
    weight[1, 1] = least
    weight[0] *= -1
    read = Member(parameter="w", axis=1, indices=np.arange(3)[:, None], role=Role.CONSUMER)
    found = dead_groups(GroupSet(name="s", size=3, members=(read,)), Zeros({"w": weight}))
    assert found.tolist() == [0, 2]

"""Groups of channels that can only be removed together, as plain arrays."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from nncfx.errors import ArgumentError, GraphError, did_you_mean


class Role(StrEnum):
    """How the entries of a parameter relate to the channels that they carry."""

    PRODUCER = "producer"
    """They create the channel: rows and biases of convolutions and linear layers, embeddings."""
    FOLLOWER = "follower"
    """They have one entry per channel: norms, PReLU, depthwise and grouped weights."""
    CONSUMER = "consumer"
    """They read the channel: columns of convolutions and linear layers."""


ROLES: Final = tuple(Role)
"""The roles in order: producers before followers before consumers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """One axis of one parameter or buffer that carries the channels of a `GroupSet`.

    Attributes:
        parameter: dotted name in the `state_dict`, for instance `layer1.0.conv1.weight`.
        axis: the axis along which the channels lie.
        indices: `g x m` integers; row `i` are the entries along `axis` of group `i`, ascending.
            `m` exceeds 1 where a channel has several entries, for instance after a flatten.
        role: producer, follower or consumer.
        is_buffer: whether `parameter` names a buffer.
        is_divided: whether weight norm divides each row by its length, which would make a row of
            zeros NaN. Masks skip such weights and zero the lengths that multiply the rows.
    """

    parameter: str
    axis: int
    indices: npt.NDArray[np.int64]
    role: Role
    is_buffer: bool = False
    is_divided: bool = False

    def __post_init__(self) -> None:
        """Store `indices`, or a copy if they are writable.

        Raises:
            ArgumentError: `indices` does not have two axes.
        """
        indices = np.asarray(self.indices, dtype=np.int64)
        if indices.flags.writeable:
            indices = indices.copy()
            indices.flags.writeable = False
        if indices.ndim != 2:  # noqa: PLR2004 (the two axes of g x m)
            raise ArgumentError(
                f"indices of '{self.parameter}' have the shape {indices.shape}; a member has one "
                "row of entries per group. Give an array of groups x entries."
            )
        if indices is not self.indices:
            object.__setattr__(self, "indices", indices)

    def entries(self, groups: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the entries along `axis` that belong to `groups`, ascending.

        >>> rows = np.array([[0, 1], [2, 3], [4, 5]])
        >>> Member(parameter="fc.weight", axis=1, indices=rows, role=Role.CONSUMER).entries([0, 2])
        array([0, 1, 4, 5])
        """
        return np.sort(self.indices[np.asarray(groups, dtype=np.int64)].ravel())


@dataclass(frozen=True, kw_only=True, eq=False)
class Width:
    """An integer attribute of a module that depends on a number of channels.

    Attributes:
        module: dotted name of the module; "" is the model itself.
        attribute: its attribute, for instance `num_heads`.
        counts: by how much the integer falls with each of the `g` groups, at least 1.
    """

    module: str
    attribute: str
    counts: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        """Store a read-only copy of `counts`."""
        counts = np.array(self.counts, dtype=np.int64)
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Average:
    """A call that computes statistics over channels, such as a layer norm.

    Attributes:
        call: the number of this call among such calls in one forward, from 0.
        place: its address.
        axis: the axis of its input along which the channels lie; not negative.
        indices: `g x m` integers; row `i` are the entries along `axis` of group `i`.
    """

    call: int
    place: str
    axis: int
    indices: npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupSet:
    """Groups of channels that have the same members; a group is removed as a whole or not at all.

    Attributes:
        name: the module of the first producer (unique; a second set of one module ends in `#2`).
        size: the number of groups, g.
        members: what must shrink together, in order of execution.
        fixed: why none of the groups can be removed, with the address; None if they can.
        fixed_at: the address of an operation that fixes them; "" if there is none.
        widths: integers of modules that shrink with the groups, in order of execution.
        averages: calls that compute statistics over the groups, which must then cover the
            remaining channels only.
        held: the address of a call whose number of channels is set only in the code, so the
            module around it must become a graph before any group can be removed; None if there
            is no such call.
        multiple: the number of groups must stay a multiple of this, as a call that reads them
            requires.
    """

    name: str
    size: int
    members: tuple[Member, ...]
    fixed: str | None = None
    fixed_at: str = ""
    widths: tuple[Width, ...] = ()
    averages: tuple[Average, ...] = ()
    held: str | None = None
    multiple: int = 1

    def __post_init__(self) -> None:
        """Check that every member has `size` groups.

        Raises:
            ArgumentError: a member has another number of groups.
        """
        for member in self.members:
            if len(member.indices) != self.size:
                raise ArgumentError(
                    f"'{member.parameter}' lists {len(member.indices)} groups of '{self.name}', "
                    f"which has {self.size}; every member has one row of entries per group."
                )

    @property
    def origin(self) -> Member:
        """The first producer; if there is none, the first follower or else consumer."""
        return min(self.members, key=lambda member: ROLES.index(member.role))

    def removable(self, count: int) -> int:
        """Return how many of `count` groups can be removed if a multiple of `multiple` is kept."""
        left = -(-(self.size - count) // self.multiple) * self.multiple
        return max(0, self.size - left)

    def by_role(self, role: Role) -> tuple[Member, ...]:
        """Return the members of one role, in order of execution."""
        return tuple(member for member in self.members if member.role is role)


@dataclass(frozen=True, eq=False)
class Channels:
    """All sets of channel groups of one model, in order of execution.

    Attributes:
        group_sets: the sets.
        literals: by module, the addresses of its calls that take a number of channels that is
            written or computed in its code.
        forms: by module, the arguments of its forward (`TensorInfo`s and plain values), if it
            must become a graph before integers in its code can shrink; these are then `widths`.
        unreached: modules (and single parameters) that no traced forward reads.
    """

    group_sets: tuple[GroupSet, ...] = ()
    literals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    forms: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    unreached: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that names are unique.

        Raises:
            ArgumentError: two sets have the same name.
        """
        for name, count in Counter(group_set.name for group_set in self.group_sets).items():
            if count > 1:
                raise ArgumentError(f"{count} group sets are named '{name}'; names are unique.")

    @property
    def prunable(self) -> tuple[GroupSet, ...]:
        """The sets whose groups may be removed."""
        return tuple(group_set for group_set in self.group_sets if group_set.fixed is None)

    @property
    def fixed(self) -> Mapping[str, str]:
        """The sets whose groups must stay, by name, each with the reason."""
        return MappingProxyType({g.name: g.fixed for g in self.group_sets if g.fixed is not None})

    def keeping(self, reasons: Iterable[str | None]) -> "Channels":
        """Return a copy that fixes the sets with a reason; `reasons` has one or None per set."""
        sets = (
            one if why is None or one.fixed is not None else replace(one, fixed=why)
            for one, why in zip(self.group_sets, reasons, strict=True)
        )
        return replace(self, group_sets=tuple(sets))

    def find(self, name: str) -> GroupSet:
        """Return the set named `name`.

        Raises:
            GraphError: there is no such set.
        """
        for group_set in self.group_sets:
            if group_set.name == name:
                return group_set
        names = [group_set.name for group_set in self.group_sets]
        raise GraphError(f"No channels at '{name}'.{did_you_mean(name, names)}")

    def __iter__(self) -> Iterator[GroupSet]:
        return iter(self.group_sets)

    def __len__(self) -> int:
        return len(self.group_sets)

    @override
    def __str__(self) -> str:
        """Return a table of name, number of groups and of members, and whether it is removable."""
        header = ("channels", "groups", "producers", "followers", "consumers", "removable")
        rows = [header, *(_row(group_set) for group_set in self.group_sets)]
        return "\n".join(_aligned(rows))


def _row(group_set: GroupSet) -> tuple[str, ...]:
    counts = (str(len(group_set.by_role(role))) for role in Role)
    verdict = "yes" if group_set.fixed is None else f"no: {group_set.fixed}"
    return (group_set.name, str(group_set.size), *counts, verdict)


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()

"""The book of a trace: which channels are one, which are fixed, and what carries them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from nncfx.graph.channels import Average, Channels, GroupSet, Member, Role, Width
from nncfx.graph.union_find import Ids, UnionFind
from nncfx.tracing.channel_ids import NO_CHANNEL

__all__ = ["ChannelLedger"]

_Key = TypeVar("_Key")
_CONSTANT = "a constant of the model's code takes the place of such a channel at '{place}'"


@dataclass(eq=False)
class ChannelLedger:
    """Notes on channel ids; `channels()` sums them up. Ids of `NO_CHANNEL` are constants."""

    _sets: UnionFind = field(default_factory=UnionFind)
    _reasons: dict[int, str] = field(default_factory=dict)
    _opaque: dict[str, str] = field(default_factory=dict)
    _carriers: dict[tuple[str, int], Ids] = field(default_factory=dict)
    _roles: dict[tuple[str, int], list[Role]] = field(default_factory=dict)
    _widths: dict[tuple[str, str], Ids] = field(default_factory=dict)
    _averages: dict[tuple[int, int], Ids] = field(default_factory=dict)

    @property
    def unions(self) -> int:
        """How often two channels turned out to be one."""
        return self._sets.unions

    def create(self, count: int) -> Ids:
        """Return the ids of `count` new channels."""
        return self._sets.grow(count)

    def create_fixed(self, reason: str) -> int:
        """Return the id of one new channel that must stay."""
        ident = self._sets.grow(1)
        self.fix(ident, reason)
        return int(ident[0])

    def find(self, ids: Ids) -> Ids:
        """Return for each id the one that stands for its group; constants stay constants."""
        known = ids != NO_CHANNEL
        roots = ids.copy()
        roots[known] = self._sets.find(ids[known])
        return roots

    def fix(self, ids: Ids, reason: str) -> None:
        """Note that the channels `ids` must stay; the first reason is the one reported."""
        for ident in np.unique(ids[ids != NO_CHANNEL]).tolist():
            self._reasons.setdefault(ident, reason)

    def tie(self, first: Ids, second: Ids, place: str) -> None:
        """Note that `first[i]` and `second[i]` are one channel, fixed where one is a constant."""
        one, other = first != NO_CHANNEL, second != NO_CHANNEL
        self._sets.union(first[one & other], second[one & other])
        reason = _CONSTANT.format(place=place)
        self.fix(first[one & ~other], reason)
        self.fix(second[other & ~one], reason)

    def fix_parameter(self, parameter: str, reason: str) -> None:
        """Note that whatever channels `parameter` carries, before or later, must stay."""
        self._opaque.setdefault(parameter, reason)

    def carried(self, parameter: str, axis: int, size: int) -> Ids:
        """Return the channels that the entries of an axis carry; new ones where none are known."""
        known = self._carriers.get((parameter, axis))
        if known is not None and bool((known != NO_CHANNEL).all()):
            return known
        return self.create(size)

    def carry(self, parameter: str, axis: int, ids: Ids, role: Role) -> None:
        """Note that entry `i` of `axis` of `parameter` carries the channel `ids[i]`.

        An axis that is noted twice, as of a shared module, ties the channels of both notes.
        """
        key = (parameter, axis)
        known = self._carriers.setdefault(key, ids)
        self.tie(known, ids, parameter)
        self._carriers[key] = np.where(known == NO_CHANNEL, ids, known)
        roles = self._roles.setdefault(key, [])
        if role not in roles:
            roles.append(role)

    def count(self, module: str, attribute: str, ids: Ids) -> None:
        """Note that an integer of a module counts the channels `ids`; a second note ties both."""
        known = self._widths.setdefault((module, attribute), ids)
        if len(known) == len(ids):
            self.tie(known, ids, f"{module}.{attribute}")

    def average(self, call: int, axis: int, ids: Ids) -> None:
        """Note that a call takes statistics over the channels `ids`, those that live."""
        self._averages[call, axis] = ids

    def channels(self, buffers: Iterable[str]) -> Channels:
        """Return every group of channels that some parameter creates or follows.

        Args:
            buffers: the carriers that are buffers, not parameters.
        """
        for (parameter, _), ids in self._carriers.items():
            if parameter in self._opaque:
                self.fix(ids, self._opaque[parameter])
        reasons = self._root_reasons()
        entries, counts = self._entries(self._carriers), self._counts()
        averages = self._entries(self._averages)
        alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for root, carriers in entries.items():
            shape = tuple((key, len(rows)) for key, rows in carriers.items())
            counted = (
                *counts[root].items(),
                *((key, len(rows)) for key, rows in averages[root].items()),
            )
            if any(set(self._roles[key]) != {Role.CONSUMER} for key in carriers):
                alike[(reasons.get(root), *shape, *counted)].append(root)
        names: dict[str, int] = defaultdict(int)
        sets = []
        for roots in alike.values():
            members = self._members([entries[root] for root in roots], frozenset(buffers))
            name = _unique(_owner(members), names)
            widths = tuple(
                Width(
                    module=module,
                    attribute=attribute,
                    counts=np.array([counts[root][module, attribute] for root in roots]),
                )
                for module, attribute in counts[roots[0]]
            )
            group_set = GroupSet(
                name=name,
                size=len(roots),
                members=members,
                fixed=reasons.get(roots[0]),
                widths=widths,
                averages=tuple(
                    Average(
                        call=call,
                        axis=axis,
                        indices=np.array([averages[root][call, axis] for root in roots]),
                    )
                    for call, axis in averages[roots[0]]
                ),
            )
            sets.append(group_set)
        return Channels(tuple(sets))

    def _root_reasons(self) -> dict[int, str]:
        reasons: dict[int, str] = {}
        for ident, reason in self._reasons.items():
            root = int(self._sets.find(np.array([ident]))[0])
            reasons.setdefault(root, reason)
        return reasons

    def _entries(self, carriers: Mapping[_Key, Ids]) -> dict[int, dict[_Key, list[int]]]:
        entries: dict[int, dict[_Key, list[int]]] = defaultdict(dict)
        for key, ids in carriers.items():
            for index, root in enumerate(self.find(ids).tolist()):
                if root != NO_CHANNEL:
                    entries[root].setdefault(key, []).append(index)
        return entries

    def _counts(self) -> dict[int, dict[tuple[str, str], int]]:
        counts: dict[int, dict[tuple[str, str], int]] = defaultdict(dict)
        for key, ids in self._widths.items():
            roots, numbers = np.unique(self.find(ids), return_counts=True)
            for root, number in zip(roots.tolist(), numbers.tolist(), strict=True):
                counts[root][key] = number
        return counts

    def _members(
        self,
        groups: list[dict[tuple[str, int], list[int]]],
        buffers: frozenset[str],
    ) -> tuple[Member, ...]:
        return tuple(
            Member(
                parameter=parameter,
                axis=axis,
                indices=np.array([group[parameter, axis] for group in groups]),
                role=role,
                is_buffer=parameter in buffers,
            )
            for parameter, axis in groups[0]
            for role in self._roles[parameter, axis]
        )


def _owner(members: tuple[Member, ...]) -> str:
    ranked = sorted(members, key=lambda member: list(Role).index(member.role))
    parameter = ranked[0].parameter
    return parameter.rpartition(".")[0] or parameter


def _unique(name: str, names: dict[str, int]) -> str:
    names[name] += 1
    return name if names[name] == 1 else f"{name}#{names[name]}"

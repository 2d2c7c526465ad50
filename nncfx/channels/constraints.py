"""The ledger of a trace: which channels are tied, which are fixed, and what carries them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from nncfx.channels.grouping import Notes, grouped
from nncfx.channels.ids import NO_CHANNEL
from nncfx.graph.channels import Channels, Role
from nncfx.graph.union_find import Ids, UnionFind
from nncfx.tracing.calls.symbolic_sizes import NamedInteger

_NAME = re.compile(r"\[([^\]]*)\]")
_CONSTANT = "a constant of the model's code takes the place of such a channel at '{place}'"


@dataclass(eq=False)
class ChannelLedger:
    """Constraints on channel ids, summarized by `channels()`. Ids of `NO_CHANNEL` are constants.

    Attributes:
        place: the address of the call that is being followed; "" if there is none.
    """

    place: str = ""

    _sets: UnionFind = field(default_factory=UnionFind)
    _reasons: list[tuple[Ids, str, str]] = field(default_factory=list)
    _opaque: dict[str, tuple[str, str]] = field(default_factory=dict)
    _never_dead: dict[str, tuple[str, str]] = field(default_factory=dict)
    _carriers: dict[tuple[str, int], Ids] = field(default_factory=dict)
    _roles: dict[tuple[str, int], list[Role]] = field(default_factory=dict)
    _widths: dict[tuple[str, str], Ids] = field(default_factory=dict)
    _numbers: dict[tuple[str, str], tuple[int, str, str]] = field(default_factory=dict)
    _averages: dict[tuple[int, str, int], Ids] = field(default_factory=dict)
    _literals: dict[str, list[str]] = field(default_factory=dict)
    _held: dict[str, Ids | tuple[str, int]] = field(default_factory=dict)
    _multiples: list[tuple[Ids, int]] = field(default_factory=list)
    _shadows: list[tuple[str, str]] = field(default_factory=list)
    _lengths: dict[str, str] = field(default_factory=dict)
    _bounds: dict[tuple[str, int], dict[tuple[str, str], int]] = field(default_factory=dict)

    @property
    def unions(self) -> int:
        """The number of steps that merged channels."""
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
        """Return the representative id of each id's group; constants stay constants."""
        return self._sets.find(ids)

    def fix(self, ids: Ids, reason: str, place: str = "") -> None:
        """Record that the channels `ids` must stay; the first reason is reported.

        Args:
            ids: channels.
            reason: why they must stay.
            place: the address of the operation that fixes them; by default the followed call.
        """
        self._reasons.append((ids[ids != NO_CHANNEL], reason, place or self.place))

    def are_fixed(self, ids: Ids) -> bool:
        """Return whether all channels `ids` must stay, as far as is known so far."""
        fixed = np.concatenate([one for one, _, _ in self._reasons] or [ids[:0]])
        return bool(np.isin(self.find(ids), self.find(fixed)).all())

    def tie(self, first: Ids, second: Ids, place: str) -> None:
        """Tie the channels `first[i]` and `second[i]`; a channel tied to a constant is fixed."""
        one, other = first != NO_CHANNEL, second != NO_CHANNEL
        both = one & other
        if np.count_nonzero(both) == both.size:
            self._sets.union(first, second)
            return
        self._sets.union(first[both], second[both])
        self.literal(".".join(_NAME.findall(place.rpartition("/")[0])), place)
        reason = _CONSTANT.format(place=place)
        self.fix(first[one & ~other], reason, place)
        self.fix(second[other & ~one], reason, place)

    def shadow(self, parameter: str, of: str) -> None:
        """Record that a parameter loses the same entries as another parameter of its shape."""
        self._shadows.append((parameter, of))

    def divide(self, parameter: str, length: str) -> None:
        """Record that rows are divided by their length and multiplied by entries of `length`.

        These entries take over the role of the rows, which become followers.
        """
        self._lengths[parameter] = length

    def fix_parameter(self, parameter: str, reason: str) -> None:
        """Record that all channels that `parameter` carries, now or later, must stay."""
        self._opaque.setdefault(parameter, (reason, self.place))

    def fix_read_by(self, parameter: str, reason: str) -> None:
        """Record that all channels that `parameter` reads, now or later, must stay."""
        self._never_dead.setdefault(parameter, (reason, self.place))

    def carried(self, parameter: str, axis: int, size: int) -> Ids:
        """Return the channels that the entries of an axis carry; new channels if unknown."""
        known = self._carriers.get((parameter, axis))
        if known is not None and bool((known != NO_CHANNEL).all()):
            return known
        return self.create(size)

    def carry(self, parameter: str, axis: int, ids: Ids, role: Role | None) -> None:
        """Record that entry `i` of `axis` of `parameter` carries the channel `ids[i]`.

        The role can be left to a later call (None). If an axis is recorded twice, for instance
        for a shared module, the channels of both calls are tied.
        """
        key = (parameter, axis)
        known = self._carriers.setdefault(key, ids)
        if known is not ids:
            self.tie(known, ids, parameter)
            self._carriers[key] = np.where(known == NO_CHANNEL, ids, known)
        roles = self._roles.setdefault(key, [])
        if role is not None and role not in roles:
            roles.append(role)

    def carry_along(self, parameter: str, axis: int, size: int, role: Role | None) -> Ids:
        """Record that an axis carries channels, and return them, new ones if unknown."""
        ids = self.carried(parameter, axis, size)
        self.carry(parameter, axis, ids, role)
        return ids

    def carry_part(self, parameter: str, axis: int, part: range, ids: Ids, size: int) -> None:
        """Record that the entries `part` of an axis of `size` entries read the channels `ids`."""
        key, there = (parameter, axis), slice(part.start, part.stop)
        known = self._carriers.get(key, np.full(size, NO_CHANNEL)).copy()
        before = known[there]
        met = before != NO_CHANNEL
        self.tie(before[met], ids[met], parameter)
        known[there] = np.where(met, before, ids)
        self._carriers[key] = known
        self._roles.setdefault(key, [Role.CONSUMER])

    def bound(self, parameter: str, axis: int, size: NamedInteger) -> None:
        """Record that a slice of a parameter begins or ends after `size` entries of an axis."""
        self._bounds.setdefault((parameter, axis), {})[size.module, size.attribute] = int(size)

    def has_bound(self, parameter: str, axis: int, place: int) -> bool:
        """Return whether an integer of a module allows a slice to begin or end at `place`."""
        return place in self._bounds.get((parameter, axis), {}).values()

    def count_bounds(self) -> None:
        """Record that the integers that bound slices count the channels before the bound."""
        for key, names in self._bounds.items():
            ids = self._carriers.get(key)
            for (module, attribute), place in names.items():
                if ids is not None:
                    self.count(module, attribute, ids[:place])

    def count(self, module: str, attribute: str, ids: Ids) -> None:
        """Record that a module's integer counts the channels `ids`; a second call ties both."""
        known = self._widths.setdefault((module, attribute), ids)
        if len(known) == len(ids):
            self.tie(known, ids, f"{module}.{attribute}")

    def number(self, integer: NamedInteger, reason: str) -> None:
        """Record that code computes with an integer of a module, so what it counts must stay."""
        key = (integer.module, integer.attribute)
        self._numbers.setdefault(key, (integer.whole, reason, self.place))

    def _fix_numbers(self) -> None:
        """Fix what these integers count, and axes of that size in their modules' parameters."""
        for key, (whole, reason, place) in self._numbers.items():
            counted = [self._widths[key]] if key in self._widths else []
            counted += [
                ids
                for (parameter, _), ids in self._carriers.items()
                if parameter.rpartition(".")[0] == key[0] and len(ids) == whole
            ]
            for ids in counted:
                self.fix(ids, reason, place)

    def average(self, call: tuple[int, str], axis: int, ids: Ids) -> None:
        """Record that a call of this number and address averages over the living of `ids`."""
        self._averages[*call, axis] = ids

    def literal(self, module: str, place: str) -> None:
        """Record that a module's code passes a number of channels to the call at `place`."""
        self._literals.setdefault(module, []).append(place)

    def hold(self, place: str, ids: Ids | tuple[str, int]) -> None:
        """Record that the number of channels of a call is set only in code.

        These are the channels `ids`, or those that an axis of a parameter will carry.
        """
        self._held[place] = ids

    def align(self, ids: Ids, multiple: int) -> None:
        """Record that a call requires the number of channels `ids` to be a multiple."""
        self._multiples.append((ids, multiple))

    def channels(self, buffers: Iterable[str]) -> Channels:
        """Return every group of channels that some parameter creates or follows.

        Args:
            buffers: the carriers that are buffers, not parameters.
        """
        self._follow_shadows()
        self._fix_numbers()
        for (parameter, axis), ids in self._carriers.items():
            if parameter in self._opaque:
                self.fix(ids, *self._opaque[parameter])
            if parameter in self._never_dead and Role.CONSUMER in self._roles[parameter, axis]:
                self.fix(ids, *self._never_dead[parameter])
        roots = self._sets.roots()
        reasons: dict[int, tuple[str, str]] = {}
        for ids, reason, place in self._reasons:
            for root in roots[ids].tolist():
                reasons.setdefault(root, (reason, place))
        shared: dict[bytes, Ids] = {}

        def found(ids: Ids) -> Ids:
            """Return the representative of each channel, as one array for equal results."""
            each = roots[ids]
            return shared.setdefault(each.tobytes(), each)

        notes = Notes(
            count=len(self._sets),
            carriers={key: found(ids) for key, ids in self._carriers.items()},
            roles=self._roles_of_lengths(),
            widths={key: found(ids) for key, ids in self._widths.items()},
            averages={key: found(ids) for key, ids in self._averages.items()},
            reasons={root: why for root, (why, _) in reasons.items()},
            places={root: place for root, (_, place) in reasons.items()},
            held={
                place: roots[self._carriers[ids] if isinstance(ids, tuple) else ids]
                for place, ids in self._held.items()
                if not isinstance(ids, tuple) or ids in self._carriers
            },
            multiples=[(roots[ids], multiple) for ids, multiple in self._multiples],
            divided=frozenset((parameter, 0) for parameter in self._lengths),
        )
        literals = {name: tuple(dict.fromkeys(found)) for name, found in self._literals.items()}
        return replace(grouped(notes, frozenset(buffers)), literals=literals)

    def _roles_of_lengths(self) -> dict[tuple[str, int], list[Role]]:
        roles = dict(self._roles)
        for parameter, length in self._lengths.items():
            roles[length, 0] = self._roles[parameter, 0] or [Role.FOLLOWER]
            roles[parameter, 0] = [Role.FOLLOWER]
        return roles

    def _follow_shadows(self) -> None:
        for shadow, of in self._shadows:
            for parameter, axis in [key for key, roles in self._roles.items() if roles]:
                if parameter == of:
                    self.carry(shadow, axis, self._carriers[of, axis], Role.FOLLOWER)

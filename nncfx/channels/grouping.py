"""Sort channels into sets of groups that the same axes carry equally often."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from nncfx.channels.ids import NO_CHANNEL
from nncfx.graph.channels import ROLES, Average, Channels, GroupSet, Member, Role, Width
from nncfx.graph.union_find import Ids

_Axis: TypeAlias = tuple[str, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Notes:
    """The constraints on channels at the end of a trace, with one id per group.

    Equal arrays should be the same object, because results are cached by identity.

    Attributes:
        count: the number of ids.
        carriers: the channel of each entry, by (parameter, axis).
        roles: the roles of the entries, by (parameter, axis).
        widths: the channels that an integer counts, by (module, attribute).
        averages: the channels that a call computes statistics over, by (call, address, axis).
        reasons: why a channel must stay, by channel.
        places: the address of the operation that fixes a channel, by channel.
        held: the channels whose number the code passes to a call, by address.
        multiples: channels, and the factor of which their number must stay a multiple.
        divided: axes whose entries are divided by their length.
    """

    count: int
    carriers: Mapping[_Axis, Ids]
    roles: Mapping[_Axis, Sequence[Role]]
    widths: Mapping[tuple[str, str], Ids]
    averages: Mapping[tuple[int, str, int], Ids]
    reasons: Mapping[int, str]
    places: Mapping[int, str] = field(default_factory=dict)
    held: Mapping[str, Ids] = field(default_factory=dict)
    multiples: Sequence[tuple[Ids, int]] = ()
    divided: frozenset[_Axis] = frozenset()


@dataclass(eq=False)
class _Set:
    size: int
    members: list[Member] = field(default_factory=list)
    widths: list[Width] = field(default_factory=list)
    averages: list[Average] = field(default_factory=list)


def grouped(notes: Notes, buffers: frozenset[str]) -> Channels:
    """Return every group of channels that some parameter creates or follows.

    Groups and sets are in the order in which their first carriers were recorded.

    Args:
        notes: the constraints of a trace.
        buffers: the carriers that are buffers, not parameters.
    """
    numbers = _by_appearance(notes)
    fixed = numbers[list(notes.reasons)].tolist()
    reasons = dict(zip(fixed, notes.reasons.values(), strict=True))
    labels = _labels(notes, numbers, reasons)
    known = labels[labels >= 0]
    sizes = np.bincount(known).tolist()
    firsts = np.flatnonzero(labels >= 0)[_first_places(known, len(sizes))]
    sets = [_Set(size) for size in sizes]
    # weight, bias, the buffers of a norm, and often the layer that reads it, share one array
    found: dict[int, list[tuple[int, Ids]]] = {}
    for (parameter, axis), ids in notes.carriers.items():
        if id(ids) not in found:
            found[id(ids)] = list(_by_label(numbers[ids], labels, sizes))
        is_buffer = parameter in buffers
        for label, rows in found[id(ids)]:
            sets[label].members += [
                Member(
                    parameter=parameter,
                    axis=axis,
                    indices=rows,
                    role=role,
                    is_buffer=is_buffer,
                    is_divided=(parameter, axis) in notes.divided,
                )
                for role in notes.roles[parameter, axis]
            ]
    for (module, attribute), ids in notes.widths.items():
        for label, rows in _by_label(numbers[ids], labels, sizes):
            counts = np.full(len(rows), rows.shape[1])
            width = Width(module=module, attribute=attribute, counts=counts)
            sets[label].widths.append(width)
    for (call, place, axis), ids in notes.averages.items():
        for label, rows in _by_label(numbers[ids], labels, sizes):
            sets[label].averages.append(Average(call=call, place=place, axis=axis, indices=rows))
    multiples = _multiples(notes, numbers, labels, sizes)
    held = _held(notes, numbers, labels)
    places = dict(zip(numbers[list(notes.places)].tolist(), notes.places.values(), strict=True))
    names: dict[str, int] = defaultdict(int)
    return Channels(
        tuple(
            GroupSet(
                name=_unique(_owner(one.members), names),
                size=one.size,
                members=tuple(one.members),
                fixed=reasons.get(number),
                fixed_at=places.get(number, ""),
                widths=tuple(one.widths),
                averages=tuple(one.averages),
                held=held.get(label),
                multiple=multiples.get(label, 1),
            )
            for label, (one, number) in enumerate(zip(sets, firsts.tolist(), strict=True))
        )
    )


def _held(notes: Notes, numbers: Ids, labels: Ids) -> dict[int, str]:
    """Return the first address for sets whose number of channels is set in code."""
    found: dict[int, str] = {}
    for place, ids in notes.held.items():
        rows = numbers[ids]
        for label in np.unique(labels[rows[rows != NO_CHANNEL]]).tolist():
            found.setdefault(label, place)
    return found


def _multiples(notes: Notes, numbers: Ids, labels: Ids, sizes: Sequence[int]) -> dict[int, int]:
    """Return the factor for sets whose number of groups must stay a multiple."""
    found: dict[int, int] = {}
    for ids, multiple in notes.multiples:
        for label, rows in _by_label(numbers[ids], labels, sizes):
            needed = multiple // math.gcd(multiple, rows.shape[1])
            found[label] = math.lcm(found.get(label, 1), needed)
    return found


def _by_appearance(notes: Notes) -> Ids:
    """Return for each channel its number by first appearance; `NO_CHANNEL` if nothing carries it.

    The last entry, which `NO_CHANNEL` indexes, is `NO_CHANNEL`.
    """
    every = np.concatenate([*_distinct(notes.carriers), np.empty(0, dtype=np.int64)])
    every = every[every != NO_CHANNEL]
    places = _first_places(every, notes.count)
    there = np.flatnonzero(places < len(every))
    roots = there[np.argsort(places[there])]
    numbers = np.full(notes.count + 1, NO_CHANNEL, dtype=np.int64)
    numbers[roots] = np.arange(len(roots))
    return numbers


def _first_places(values: Ids, count: int) -> Ids:
    """Return the first position of each integer below `count` in `values`; else their number."""
    places = np.full(count, len(values))
    np.minimum.at(places, values, np.arange(len(values)))
    return places


def _distinct(*tables: Mapping[Any, Ids]) -> list[Ids]:
    """Return the distinct array objects in `tables`."""
    return list({id(ids): ids for table in tables for ids in table.values()}.values())


def _labels(notes: Notes, numbers: Ids, reasons: Mapping[int, str]) -> Ids:
    """Return for each group the number of its set; `NO_CHANNEL` if the group is only read."""
    # the last entry belongs to NO_CHANNEL, which has no group
    labels, created = np.zeros_like(numbers), np.zeros(len(numbers), dtype=np.bool_)
    kinds = {why: kind for kind, why in enumerate(reasons.values(), 1)}
    labels[list(reasons)] = [kinds[why] for why in reasons.values()]
    for axis, ids in notes.carriers.items():
        if any(role is not Role.CONSUMER for role in notes.roles[axis]):
            created[numbers[ids]] = True
    count = numbers.max(initial=NO_CHANNEL) + 1
    labels, created = labels[:count], created[:count]
    for ids in _distinct(notes.carriers, notes.widths, notes.averages):
        _refine(labels, numbers[ids])
    places = _first_places(labels[created], labels.max(initial=0) + 1)
    ranks = np.empty_like(places)
    ranks[np.argsort(places)] = np.arange(len(places))
    return np.where(created, ranks[labels], NO_CHANNEL)


def _refine(labels: Ids, rows: Ids) -> None:
    """Split labels, in place, of groups that occur in `rows` differently often."""
    counts = np.bincount(rows[rows != NO_CHANNEL])
    present = np.flatnonzero(counts)
    if not len(present):
        return
    keys, often = labels[present], counts[present]
    if np.count_nonzero(often != often[0]):  # rare, since groups nearly always occur equally often
        often = _ranks(often)
        keys = keys * (often.max() + 1) + often
    labels[present] = labels.max() + 1 + _ranks(keys)


def _ranks(values: Ids) -> Ids:
    """Return for each value its rank among the distinct `values`.

    A table of occurring values is faster than sorting, since labels and counts are small.
    """
    occurs = np.zeros(values.max() + 1, dtype=np.bool_)
    occurs[values] = True
    ranks: Ids = (np.cumsum(occurs) - 1)[values]
    return ranks


def _by_label(rows: Ids, labels: Ids, sizes: Sequence[int]) -> Iterator[tuple[int, Ids]]:
    """Yield each set that occurs in `rows`, with the entries of its `g` groups, `g x m`."""
    entries = np.flatnonzero(rows != NO_CHANNEL)
    entries = entries[labels[rows[entries]] != NO_CHANNEL]
    keys = labels[rows[entries]] * len(labels) + rows[entries]
    entries = entries[np.argsort(keys, kind="stable")]
    found = labels[rows[entries]]
    bounds = [0, *(np.flatnonzero(np.diff(found)) + 1).tolist(), len(entries)]
    for start, end in itertools.pairwise(bounds):
        if start < end:
            label = int(found[start])
            rows = entries[start:end].reshape(sizes[label], -1)
            rows.flags.writeable = False
            yield label, rows


def _owner(members: Sequence[Member]) -> str:
    parameter = min(members, key=lambda member: ROLES.index(member.role)).parameter
    return parameter.rpartition(".")[0] or parameter


def _unique(name: str, names: dict[str, int]) -> str:
    names[name] += 1
    return name if names[name] == 1 else f"{name}#{names[name]}"

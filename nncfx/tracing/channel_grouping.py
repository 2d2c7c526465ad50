"""Sort channels into sets of groups: those that the same axes carry, equally often."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from nncfx.graph.channels import ROLES, Average, Channels, GroupSet, Member, Role, Width
from nncfx.graph.union_find import Ids
from nncfx.tracing.channel_ids import NO_CHANNEL

__all__ = ["Notes", "grouped"]

_Axis: TypeAlias = tuple[str, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Notes:
    """What is known of channels at the end of a trace, by the ids that stand for their groups.

    Attributes:
        count: how many ids there are.
        carriers: (parameter, axis) to the channel of each entry.
        roles: (parameter, axis) to what its entries do with them.
        widths: (module, attribute) to the channels that the integer counts.
        averages: (call, axis) to the channels that a call takes statistics over.
        reasons: channel to why it must stay.
        held: address to the channels of which the code gives it the number.
    """

    count: int
    carriers: Mapping[_Axis, Ids]
    roles: Mapping[_Axis, Sequence[Role]]
    widths: Mapping[tuple[str, str], Ids]
    averages: Mapping[tuple[int, int], Ids]
    reasons: Mapping[int, str]
    held: Mapping[str, Ids] = field(default_factory=dict)


@dataclass(eq=False)
class _Set:
    size: int
    members: list[Member] = field(default_factory=list)
    widths: list[Width] = field(default_factory=list)
    averages: list[Average] = field(default_factory=list)


def grouped(notes: Notes, buffers: frozenset[str]) -> Channels:
    """Return every group of channels that some parameter creates or follows.

    Groups and sets are in the order in which their first carriers were noted.

    Args:
        notes: of a trace.
        buffers: the carriers that are buffers, not parameters.
    """
    numbers, roots = _by_appearance(notes.carriers.values(), notes.count)
    reasons = [notes.reasons.get(root) for root in roots.tolist()]
    labels = _labels(notes, numbers, reasons)
    firsts = np.unique(labels[labels >= 0], return_index=True)[1]
    known = np.flatnonzero(labels >= 0)[firsts]
    sizes = np.bincount(labels[labels >= 0]).tolist()
    sets = [_Set(size) for size in sizes]
    # the weight, the bias, the buffers of a norm, and often the layer that reads it, are alike
    found: dict[bytes, list[tuple[int, Ids]]] = {}
    for (parameter, axis), ids in notes.carriers.items():
        key = ids.tobytes()
        if key not in found:
            found[key] = list(_by_label(numbers[ids], labels, sizes))
        is_buffer = parameter in buffers
        for label, rows in found[key]:
            sets[label].members += [
                Member(
                    parameter=parameter, axis=axis, indices=rows, role=role, is_buffer=is_buffer
                )
                for role in notes.roles[parameter, axis]
            ]
    for (module, attribute), ids in notes.widths.items():
        for label, rows in _by_label(numbers[ids], labels, sizes):
            counts = np.full(len(rows), rows.shape[1])
            width = Width(module=module, attribute=attribute, counts=counts)
            sets[label].widths.append(width)
    for (call, axis), ids in notes.averages.items():
        for label, rows in _by_label(numbers[ids], labels, sizes):
            sets[label].averages.append(Average(call=call, axis=axis, indices=rows))
    held = _held(notes, numbers, labels)
    names: dict[str, int] = defaultdict(int)
    return Channels(
        tuple(
            GroupSet(
                name=_unique(_owner(one.members), names),
                size=one.size,
                members=tuple(one.members),
                fixed=reasons[number],
                widths=tuple(one.widths),
                averages=tuple(one.averages),
                held=held.get(label),
            )
            for label, (one, number) in enumerate(zip(sets, known.tolist(), strict=True))
        ),
    )


def _held(notes: Notes, numbers: Ids, labels: Ids) -> dict[int, str]:
    """Return for the sets whose numbers of channels the code gives the first address."""
    found: dict[int, str] = {}
    for place, ids in notes.held.items():
        rows = numbers[ids]
        for label in np.unique(labels[rows[rows != NO_CHANNEL]]).tolist():
            found.setdefault(label, place)
    return found


def _by_appearance(carriers: Iterable[Ids], count: int) -> tuple[Ids, Ids]:
    """Return for each channel its number by first appearance, and for each number its channel.

    The last entry, where `NO_CHANNEL` points, is `NO_CHANNEL`.
    """
    every = np.concatenate([*carriers, np.array([NO_CHANNEL])])
    found, first = np.unique(every, return_index=True)
    found, first = found[1:], first[1:]  # without NO_CHANNEL, the lowest
    roots = found[np.argsort(first)]
    numbers = np.full(count + 1, NO_CHANNEL, dtype=np.int64)
    numbers[roots] = np.arange(len(roots))
    return numbers, roots


def _labels(notes: Notes, numbers: Ids, reasons: Sequence[str | None]) -> Ids:
    """Return for each group the number of its set; `NO_CHANNEL` where groups are only read."""
    kinds = {why: kind for kind, why in enumerate(dict.fromkeys(reasons))}
    labels = np.array([kinds[why] for why in reasons], dtype=np.int64)
    created = np.zeros(len(labels), dtype=bool)
    for axis, ids in notes.carriers.items():
        if set(notes.roles[axis]) != {Role.CONSUMER}:
            rows = numbers[ids]
            created[rows[rows != NO_CHANNEL]] = True
    every = (*notes.carriers.values(), *notes.widths.values(), *notes.averages.values())
    for ids in {ids.tobytes(): ids for ids in every}.values():
        _refine(labels, numbers[ids])
    found, first, inverse = np.unique(labels[created], return_index=True, return_inverse=True)
    order = np.empty(len(found), dtype=np.int64)
    order[np.argsort(first)] = np.arange(len(found))
    labels[:] = NO_CHANNEL
    labels[created] = order[inverse]
    return labels


def _refine(labels: Ids, rows: Ids) -> None:
    """Tell apart, in place, the groups that occur in `rows` differently often."""
    counts = np.bincount(rows[rows != NO_CHANNEL])
    present = np.flatnonzero(counts)
    if not len(present):
        return
    often = _ranks(counts[present])
    labels[present] = labels.max() + 1 + _ranks(labels[present] * (often.max() + 1) + often)


def _ranks(values: Ids) -> Ids:
    """Return for each value how many smaller ones there are among the different `values`.

    A table of which occur takes less than sorting: labels are few, and counts nearly all alike.
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

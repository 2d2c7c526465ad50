"""Which entries of which parameters belong to chosen groups of channels: `entries_of`."""

from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from nncfx.graph.channels import Channels
from nncfx.graph.union_find import Ids

Entries: TypeAlias = dict[tuple[str, int], Ids]
"""(Parameter or buffer, axis) to entries along that axis, ascending."""


def entries_of(channels: Channels, groups: Mapping[str, Ids], *, zeroed: bool = False) -> Entries:
    """Return the entries that chosen groups have along every axis that carries some of them.

    Axes that carry the same channels, as the vectors of a batch norm and the columns of the layer
    that reads it do, share one array.

    Args:
        channels: the groups of the model.
        groups: name of a set to the numbers of its groups.
        zeroed: whether only axes are among the result that masks set to zero: none of buffers,
            and no rows that are divided by their length.
    """
    parts: dict[tuple[str, int], list[Ids]] = defaultdict(list)
    for group_set in channels:
        chosen = groups.get(group_set.name)
        if chosen is None:
            continue
        taken: dict[int, Ids] = {}
        for member in group_set.members:
            if zeroed and (member.is_buffer or member.is_divided):
                continue
            rows = taken.get(id(member.indices))
            if rows is None:
                rows = taken[id(member.indices)] = member.indices[chosen].reshape(-1)
            parts[member.parameter, member.axis].append(rows)
    alike: dict[tuple[int, ...], Ids] = {}
    found: Entries = {}
    for axis, each in parts.items():
        key = tuple([id(one) for one in each])
        if key not in alike:
            alike[key] = _ascending(each)
        found[axis] = alike[key]
    return found


def _ascending(parts: list[Ids]) -> Ids:
    """Return every entry of `parts` once, in order, without sorting."""
    entries = np.concatenate(parts)
    is_there = np.zeros(entries.max(initial=-1) + 1, dtype=np.bool_)
    is_there[entries] = True
    return np.flatnonzero(is_there)

"""Find the entries of parameters that belong to chosen groups of channels."""

from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from nncfx.graph.channels import Channels
from nncfx.graph.union_find import Ids

Entries: TypeAlias = dict[tuple[str, int], Ids]
"""(Parameter or buffer, axis) to entries along that axis, ascending."""


def entries_of(channels: Channels, groups: Mapping[str, Ids], *, zeroed: bool = False) -> Entries:
    """Return the entries of the chosen groups along each axis that carries any of them.

    Axes that carry the same channels share one array, for instance the vectors of a batch norm
    and the columns of the layer that reads it.

    Args:
        channels: the groups of the model.
        groups: the numbers of the chosen groups, by name of their set.
        zeroed: whether to return only axes that masks set to zero, which leaves out buffers and
            rows that are divided by their length.
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

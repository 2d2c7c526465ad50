"""Determines which channels are dead, and how many of them can be removed."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from nncfx.errors import GraphError
from nncfx.graph.channels import Channels, GroupSet, Role
from nncfx.targets import Alignment

_Space = tuple[str, int]
_ONE = "one channel must stay"
_NUMPYS: Final = frozenset([torch.float32, torch.float64, torch.complex64, torch.complex128])
"""Dtypes that numpy compares fast; others are slow or unsupported."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What to remove, and why dead channels are kept.

    Attributes:
        groups: group-set name to the removed groups, ascending; sets that lose none are absent.
        kept: group-set name to the reason why dead groups are kept.
        is_cut: whether all groups of some set are dead, so that no signal passes.
    """

    groups: Mapping[str, npt.NDArray[np.int64]]
    kept: Mapping[str, str]
    is_cut: bool = False


def has_dead_entries(group_set: GroupSet, tensors: Mapping[str, torch.Tensor]) -> bool:
    """Return whether a weight that reads channels of the set is zero for some entry of them.

    Args:
        group_set: groups of any size.
        tensors: parameters and buffers by name.
    """
    zeros = Zeros(tensors)
    return any(
        bool(zeros.along(member.parameter, member.axis)[member.indices].any())
        for member in group_set.by_role(Role.CONSUMER)
    )


class Zeros:
    """Determines which slices of parameters and buffers are zero; checks each axis once."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self._found: dict[tuple[str, int], npt.NDArray[np.bool_]] = {}

    def along(self, parameter: str, axis: int) -> npt.NDArray[np.bool_]:
        """Return whether all entries are exactly zero, for each index of `axis`."""
        if (parameter, axis) not in self._found:
            alive = _is_nonzero(self._tensors[parameter].detach())
            before = math.prod(alive.shape[:axis])
            around = alive.reshape(before, alive.shape[axis], math.prod(alive.shape[axis + 1 :]))
            read = np.logical_or.reduce(np.logical_or.reduce(around, axis=0), axis=1)
            self._found[parameter, axis] = ~read
        return self._found[parameter, axis]


def _is_nonzero(tensor: torch.Tensor) -> npt.NDArray[np.bool_]:
    """Return whether each entry is non-zero; numpy compares in a fifth of torch's time."""
    nonzero: npt.NDArray[np.bool_]
    if tensor.device.type == "cpu" and tensor.dtype in _NUMPYS:
        nonzero = tensor.resolve_conj().numpy() != 0
    else:
        nonzero = (tensor != 0).cpu().numpy()
    return nonzero


def dead_groups(group_set: GroupSet, zeros: Zeros) -> npt.NDArray[np.int64]:
    """Return the groups whose consumer slices are all exactly zero, ascending.

    Producers need not be zero: what nothing reads has no effect. A set without consumers has no
    dead groups, since it may be read elsewhere. NaN is not zero.
    """
    consumers = group_set.by_role(Role.CONSUMER)
    dead = np.full(group_set.size, bool(consumers))
    for member in consumers:
        found = zeros.along(member.parameter, member.axis)[member.indices]
        dead &= found[:, 0] if found.shape[1] == 1 else found.all(axis=1)
    return np.flatnonzero(dead)


def check_fit(channels: Channels, tensors: Mapping[str, torch.Tensor]) -> None:
    """Check that `channels` belong to the model with these parameters and buffers.

    Raises:
        GraphError: the model lacks a member of a set, or the member has fewer entries.
    """
    for group_set in channels:
        for member in group_set.members:
            entries = int(member.indices.max(initial=-1)) + 1
            found = tensors.get(member.parameter)
            shape = () if found is None else found.shape
            if member.axis < len(shape) and entries <= shape[member.axis]:
                continue
            has = "none" if found is None else f"one of shape {list(shape)}"
            raise GraphError(
                f"The channels of '{group_set.name}' are not those of this model: they take a "
                f"tensor '{member.parameter}' with at least {entries} entries along axis "
                f"{member.axis}, and the model has {has}. Pass what prunable_channels finds for "
                "this very model, or leave 'channels' out."
            )


def select_removable(
    channels: Channels, tensors: Mapping[str, torch.Tensor], alignment: Alignment
) -> Selection:
    """Return the dead groups to remove.

    A space that loses channels keeps a width that `alignment` allows: as many dead channels are
    kept as needed, those with the lowest numbers. A space that has no such width loses nothing.

    Args:
        channels: the groups of the model.
        tensors: parameters and buffers by name.
        alignment: the allowed widths.
    """
    zeros = Zeros(tensors)
    dead = {group_set.name: dead_groups(group_set, zeros) for group_set in channels}
    kept = {name: why for name, why in channels.fixed.items() if len(dead[name])}
    candidates = [group_set for group_set in channels.prunable if len(dead[group_set.name])]
    counts = {group_set.name: len(dead[group_set.name]) for group_set in candidates}
    counts = _rounded(candidates, counts, tensors, alignment)
    for name, count in counts.items():
        stays = len(dead[name]) - count
        if stays:
            multiple = alignment.multiple
            needed = channels.find(name).multiple
            rule = f"a width stays a multiple of {multiple}" if multiple > 1 else _ONE
            if needed > 1:
                rule = f"a call that reads them takes multiples of {needed}"
            kept[name] = f"{stays} dead kept: {rule}"
    groups = {name: dead[name][-count:] for name, count in counts.items() if count}
    is_cut = any(len(dead[one.name]) == one.size for one in channels if one.size)
    return Selection(groups=groups, kept=kept, is_cut=is_cut)


def _rounded(
    candidates: list[GroupSet],
    counts: dict[str, int],
    tensors: Mapping[str, torch.Tensor],
    alignment: Alignment,
) -> dict[str, int]:
    """Return how many groups of each set to remove, lowered until every space is aligned."""
    spaces: dict[_Space, dict[str, int]] = defaultdict(dict)
    steps = {one.name: one for one in candidates}
    for group_set in candidates:
        for member in group_set.members:
            if member.role is not Role.CONSUMER:
                per_group = member.indices.shape[1]
                spaces[member.parameter, member.axis][group_set.name] = per_group
    counts = {one.name: one.removable(counts[one.name]) for one in candidates}
    settled = False
    while not settled:
        settled = True
        for (parameter, axis), shares in spaces.items():
            removed = sum(counts[name] * share for name, share in shares.items())
            width = tensors[parameter].shape[axis] - removed
            if removed and not alignment.allows(width):
                name = max(shares, key=lambda name: counts[name])
                counts[name] = steps[name].removable(counts[name] - 1)
                settled = False
    return counts

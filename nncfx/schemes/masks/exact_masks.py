"""Masks with exact counts: which weights and channel groups to keep.

A mask is a bool tensor, True for entries to keep. Every function here is pure.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from nncfx.errors import ArgumentError, CompressionError, GraphError, did_you_mean
from nncfx.graph.channel_entries import entries_of
from nncfx.graph.channels import Channels, GroupSet, Member, Role
from nncfx.graph.union_find import Ids
from nncfx.schemes.masks.criteria import Criterion, resolve_criterion
from nncfx.schemes.masks.ranking import Largest, Part, ranked_together

MaskScope: TypeAlias = Literal["global", "local"]
"""Whether one ranking covers all tensors together ("global") or each has its own ("local")."""


def check_level(level: float) -> float:
    """Return `level` as a float, after checking it.

    Raises:
        ArgumentError: `level` is not a number in [0, 1).
    """
    given: object = level
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1:
        raise ArgumentError(
            f"level is {level!r}; a level is the fraction that is removed and lies in [0, 1). "
            "Write 0.3 for 30 %."
        )
    return float(given)


def check_at_least(name: str, value: int, least: int) -> None:
    """Check that `value` is a whole number of at least `least`.

    Raises:
        ArgumentError: it is not; the message calls it `name`.
    """
    given: object = value
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise ArgumentError(f"{name} is {value!r}; it must be a whole number, at least {least}.")


def kept_count(n: int, level: float) -> int:
    """Return how many of `n` entries to keep at `level` in [0, 1): `n - floor(level * n)`.

    At least one, unless `n` is 0.

    >>> kept_count(10, 0.25)
    8
    """
    return n - math.floor(check_level(level) * n)


def group_scores(
    channels: Channels,
    weights: Mapping[str, Tensor],
    criterion: Criterion = "l2norm",
    *,
    normalize: bool = True,
) -> list[Tensor]:
    """Return one score per group of each prunable group set, in the order of `channels.prunable`.

    The score of a group is the criterion of the slices of all its producers, concatenated (weights
    only: biases count only in a set without weights).

    Args:
        channels: The channel analysis of the model.
        weights: Parameters by dotted name (at least all producers).
        criterion: A name such as "l1norm" or "l2norm", or a function from `g x m` signed weights
            to `g` scores.
        normalize: Divide by the mean score of the set, so that sets can be compared in one ranking
            (a set whose scores are all zero is unchanged).

    Raises:
        ArgumentError: no criterion has that name.
        GraphError: `weights` lacks a producer.
        CompressionError: a set has no producer, or a score is NaN.
    """
    score = resolve_criterion(criterion)
    scores = []
    for group_set in channels.prunable:
        slices = _producer_slices(group_set, weights)
        # a user's criterion may write to its input, so it gets a copy; ours only read
        is_shared = isinstance(criterion, str) and len(slices) == 1
        values = score(slices[0] if is_shared else torch.cat(slices, dim=1))
        scores.append(comparable(group_set, values, normalize=normalize))
    return scores


def comparable(group_set: GroupSet, scores: Tensor, *, normalize: bool) -> Tensor:
    """Return the scores of a set's groups, divided by their mean if `normalize` (and it is > 0).

    Raises:
        CompressionError: a score is NaN.
    """
    average = float(scores.mean())
    if math.isnan(average) and torch.isnan(scores).any():
        raise CompressionError(
            f"The weights that produce '{group_set.name}' give NaN scores, which have no "
            "rank. Train the model to finite weights first."
        )
    return scores / average if normalize and average > 0 else scores


def group_masks(
    channels: Channels, keep: Sequence[Tensor], weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the mask of every parameter that carries groups to remove.

    Covers producers (rows and biases), followers (norm weights and biases, depthwise weights) and
    consumers (columns), so a masked channel is zero on both sides and removing it changes nothing.
    Buffers (running statistics) are not masked, nor are rows that weight norm divides by their
    length; the length is masked instead.

    Args:
        channels: The channel analysis of the model.
        keep: For each set of `channels.prunable`, g bools, True for groups to keep.
        weights: Parameters by dotted name; only their shapes and devices are read.

    Returns:
        Masks by parameter name, broadcastable to the parameter (size 1 on axes without removed
        entries). Parameters that lose nothing are absent.

    Raises:
        ArgumentError: `keep` does not fit the prunable sets, or keeps no group of one of them.
        GraphError: `weights` lacks a member.
    """
    masks: dict[str, Tensor] = {}
    gone = removed_groups(channels, keep)
    for (name, axis), entries in entries_of(channels, gone, zeroed=True).items():
        parameter = named(weights, name)
        shape = [1] * parameter.ndim
        shape[axis] = parameter.shape[axis]
        view = _all_but(entries, shape[axis]).to(parameter.device).view(shape)
        masks[name] = masks[name] & view if name in masks else view
    return masks


def zero_groups(channels: Channels, keep: Sequence[Tensor], weights: Mapping[str, Tensor]) -> None:
    """Set to zero, in place, the entries masked by `group_masks`, without building masks.

    Args:
        channels: The channel analysis of the model.
        keep: For each set of `channels.prunable`, g bools, True for groups to keep.
        weights: Parameters by dotted name, finite (0 times infinity is NaN); changed in place.

    Raises:
        ArgumentError: `keep` does not fit the prunable sets, or keeps no group of one of them.
            Nothing is changed.
        GraphError: `weights` lacks a member. Nothing is changed.
    """
    gone = entries_of(channels, removed_groups(channels, keep), zeroed=True)
    parameters = [(named(weights, name).detach(), axis) for name, axis in gone]
    factors: dict[tuple[int, int, torch.dtype, torch.device], Tensor] = {}
    for (parameter, axis), entries in zip(parameters, gone.values(), strict=True):
        # axes with the same channels share their entries
        key = (id(entries), parameter.shape[axis], parameter.dtype, parameter.device)
        if key not in factors:
            factors[key] = _all_but(entries, parameter.shape[axis]).to(parameter)
        # multiplying by a vector takes a third of the time of a fill by indices or mask
        parameter.mul_(factors[key].view(-1, *[1] * (parameter.ndim - 1 - axis)))


def _all_but(entries: Ids, count: int) -> Tensor:
    """Return `count` bools, False at `entries`."""
    stays = np.ones(count, dtype=np.bool_)
    stays[entries] = False
    return torch.from_numpy(stays)


def removed_groups(channels: Channels, keep: Sequence[Tensor]) -> dict[str, Ids]:
    """Return the indices of the removed groups, by the names of the sets that lose some.

    Raises:
        ArgumentError: `keep` does not fit the prunable sets, or keeps no group at all.
    """
    prunable = channels.prunable
    if [mask.numel() for mask in keep] != [group_set.size for group_set in prunable]:
        raise ArgumentError(
            f"keep has {[mask.numel() for mask in keep]} entries, but the prunable group sets "
            f"have {[group_set.size for group_set in prunable]} groups. Give one bool per group, "
            "in the order of channels.prunable."
        )
    if prunable and not any(mask.any() for mask in keep):
        raise ArgumentError(
            f"keep leaves none of the {sum(mask.numel() for mask in keep)} groups, so all "
            "outputs would be constants. Keep some; 'keep_groups' leaves one of each set."
        )
    gone = {
        group_set.name: (~mask).cpu().numpy().nonzero()[0]
        for group_set, mask in zip(prunable, keep, strict=True)
    }
    return {name: groups for name, groups in gone.items() if len(groups)}


def ranked_parts(
    parts: Sequence[Part], level: float, scope: MaskScope, minimum: int
) -> list[Largest]:
    """Return the largest entries of flat `parts`, with exact counts."""
    check_level(level)
    check_at_least("minimum", minimum, 0)
    if scope == "local":
        counts = [max(kept_count(p.numel(), level), minimum) for p in parts]
        return [ranked_together([p], n)[0] for p, n in zip(parts, counts, strict=True)]
    if scope != "global":
        raise ArgumentError(
            f"scope is {scope!r}; it says which entries are ranked together. "
            "Use 'global' (one ranking for all) or 'local' (one for each)."
        )
    return largest_together(parts, kept_count(sum(p.numel() for p in parts), level), minimum)


def largest_together(parts: Sequence[Part], kept: int, minimum: int) -> list[Largest]:
    """Return the `kept` largest entries of `parts` together, at least `minimum` of each."""
    least = [min(minimum, p.numel()) for p in parts]
    chosen: dict[int, Largest] = {}
    ranked = list(range(len(parts)))
    # A part that gets less than its minimum when all are ranked gets its minimum, and the others
    # share the rest. Their threshold only rises, so the part would not get more later.
    while ranked:
        found = ranked_together([parts[index] for index in ranked], kept)
        chosen |= dict(zip(ranked, found, strict=True))
        weak = [index for index in ranked if chosen[index].count < least[index]]
        if not weak:
            break
        chosen |= {index: ranked_together([parts[index]], least[index])[0] for index in weak}
        kept -= sum(least[index] for index in weak)
        ranked = [index for index in ranked if index not in weak]
    return [chosen[index] for index in range(len(parts))]


def _producer_slices(group_set: GroupSet, weights: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the producers' weights as `g x m` matrices, one per producer."""
    producers = [m for m in group_set.by_role(Role.PRODUCER) if not m.is_buffer]
    tensors = [(member, named(weights, member.parameter)) for member in producers]
    matrices = [pair for pair in tensors if pair[1].ndim > 1] or tensors
    if not matrices:
        raise CompressionError(
            f"No parameter produces the channels of '{group_set.name}', so its groups have no "
            "score. Give channels of which the set is fixed."
        )
    return [group_slices(member, tensor.detach()) for member, tensor in matrices]


def group_slices(member: Member, tensor: Tensor) -> Tensor:
    """Return the entries of `tensor` that belong to each group, as a `g x m` matrix."""
    rows, width = tensor, tensor.shape[member.axis]
    entries = member.indices.ravel()
    # usually these are all entries of the tensor
    if len(entries) != width or np.count_nonzero(entries != np.arange(width)):
        rows = rows.index_select(member.axis, _indices(member).to(tensor.device).flatten())
    return rows.movedim(member.axis, 0).reshape(len(member.indices), -1)


def _indices(member: Member) -> Tensor:
    # copied, because torch warns about sharing memory with a read-only array
    return torch.from_numpy(member.indices.copy())


def named(weights: Mapping[str, Tensor], name: str) -> Tensor:
    """Return `weights[name]`.

    Raises:
        GraphError: there is no such weight.
    """
    if name not in weights:
        raise GraphError(
            f"No parameter '{name}' among the given weights, though its channels are to be "
            f"pruned. Pass dict(model.named_parameters()).{did_you_mean(name, weights)}"
        )
    return weights[name]

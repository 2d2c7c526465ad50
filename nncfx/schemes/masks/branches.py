"""Pruning in depth: removes whole branches of residual networks."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nncfx.errors import ArgumentError, CompressionError
from nncfx.graph.channels import Channels, GroupSet, Role
from nncfx.schemes.masks.exact_masks import check_level


def branch_sets(channels: Channels) -> tuple[GroupSet, ...]:
    """Return the prunable sets that each carry a whole residual branch.

    Without its channels such a branch adds a constant, and the rest of the model is unaffected. A
    set qualifies if all layers that read it add to a sum, like the second convolution of a block
    or the output projection of a transformer. The first layer of each sum is excluded, since it
    may belong to the trunk.
    """
    first: dict[str, bool] = {}
    for one in channels:
        layers = list(dict.fromkeys(_layer(m.parameter) for m in one.by_role(Role.PRODUCER)))
        first |= {layer: number == 0 for number, layer in enumerate(layers)}
    return tuple(
        one
        for one in channels.prunable
        if one.by_role(Role.CONSUMER)
        and not any(first.get(_layer(m.parameter), True) for m in one.by_role(Role.CONSUMER))
    )


def keep_branches(channels: Channels, scores: Sequence[Tensor], level: float) -> list[Tensor]:
    """Return which groups of each set of `channels.prunable` to keep when removing branches.

    `floor(level * n)` of n branches are removed: those whose groups have the smallest mean score;
    among equal ones, the later. With masks of the result (`group_masks`) the branch adds a
    constant; thinning leaves it a single channel or head.

    Args:
        channels: the channel analysis of the model.
        scores: as `group_scores` returns them with `normalize=False`; normalised scores have equal
            means.
        level: the fraction of branches to remove, in [0, 1).

    Raises:
        ArgumentError: `level` is out of range, or `scores` does not fit the prunable sets.
        CompressionError: the model has no branch that can be removed.
    """
    check_level(level)
    prunable = channels.prunable
    if [score.numel() for score in scores] != [one.size for one in prunable]:
        raise ArgumentError(
            f"scores are for {[score.numel() for score in scores]} groups, but the prunable sets "
            f"have {[one.size for one in prunable]}. Give one score per group, in their order."
        )
    names = {one.name for one in branch_sets(channels)}
    if not names:
        raise CompressionError(
            "No branch of this model can be removed: none of its prunable channels leads into a "
            "sum with others. Prune its channels instead (keep_groups)."
        )
    ranked = sorted(
        (float(score.mean()), -number)
        for number, (one, score) in enumerate(zip(prunable, scores, strict=True))
        if one.name in names
    )
    gone = {-number for _, number in ranked[: math.floor(level * len(ranked))]}
    return [
        torch.full((one.size,), number not in gone, dtype=torch.bool, device="cpu")
        for number, one in enumerate(prunable)
    ]


def _layer(parameter: str) -> str:
    return parameter.rpartition(".")[0]

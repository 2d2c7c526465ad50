"""Chooses the groups of channels to keep at a level, with allowed widths: `keep_groups`."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nncfx.schemes.masks.alignment import aligned_count, resolve_alignment
from nncfx.schemes.masks.exact_masks import MaskScope, keep_largest, keep_together, kept_count
from nncfx.schemes.masks.ranking import largest
from nncfx.targets import Alignment, Target


def keep_groups(
    scores: Sequence[Tensor],
    level: float,
    *,
    align: int | str | Alignment | Target | Sequence[Alignment] = 1,
    minimum: int = 1,
    scope: MaskScope = "global",
    entries: Sequence[int] | None = None,
) -> list[Tensor]:
    """Return, for each group set, the mask of its groups with the largest scores.

    As many groups are kept as in `magnitude_mask`. With `align`, every set that loses a group
    keeps as many more as it needs for an allowed width (see `aligned_count`). Thus the level is
    never exceeded, unless the alignment rounds down: per set (scope "local"), or over all sets
    together (scope "global", where some sets compensate for others as far as possible). Level 0
    keeps everything, whatever `align`. Among equal scores the earlier group is kept.

    Args:
        scores: One tensor of g scores per group set, as `group_scores` returns them.
        level: Fraction of groups to remove, in [0, 1).
        align: The allowed widths, an integer of at least 1 that widths are multiples of, or a
            target or its name; or allowed widths for each set.
        minimum: The smallest number of groups of each set to keep.
        scope: One ranking over all sets, or one for each.
        entries: How many entries of its layer a group of each set has; None: one each.

    Raises:
        ArgumentError: `level`, `align`, `minimum` or `scope` is out of range.

    >>> keep_groups([torch.tensor([3.0, 1.0, 2.0])], 0.34)
    [tensor([ True, False,  True])]
    """
    parts = [score.detach() for score in scores]
    kept = keep_largest(parts, level, scope, minimum)
    if isinstance(align, int | str | Alignment | Target):
        align = [resolve_alignment(align)] * len(parts)
    if all(one.multiple == 1 for one in align):
        return kept
    widths = entries or [1] * len(parts)

    def aligned(masks: Sequence[Tensor]) -> list[int]:
        return [
            aligned_count(
                int(torch.count_nonzero(mask)),
                mask.numel(),
                one,
                each=each,
                minimum=max(minimum, 1),
            )
            for mask, each, one in zip(masks, widths, align, strict=True)
        ]

    if scope == "global" and not align[0].down:
        target = kept_count(sum(part.numel() for part in parts), level)
        kept = _ranked_on(parts, target, minimum, aligned)
    return [
        mask if int(torch.count_nonzero(mask)) == wanted else largest(part, wanted)
        for part, mask, wanted in zip(parts, kept, aligned(kept), strict=True)
    ]


def _ranked_on(
    parts: list[Tensor],
    target: int,
    minimum: int,
    aligned: Callable[[Sequence[Tensor]], list[int]],
) -> list[Tensor]:
    """Return masks of the fewest largest entries that leave at least `target` after aligning."""
    low, high = 0, target
    while low < high:
        middle = (low + high) // 2
        if sum(aligned(keep_together(parts, middle, minimum))) >= target:
            high = middle
        else:
            low = middle + 1
    return keep_together(parts, high, minimum)

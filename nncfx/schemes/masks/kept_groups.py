"""Chooses the groups of channels to keep at a level, with allowed widths: `keep_groups`."""

from collections.abc import Sequence

from torch import Tensor

from nncfx.schemes.masks.alignment import aligned_count, resolve_alignment
from nncfx.schemes.masks.exact_masks import MaskScope, kept_count, largest_together, ranked_parts
from nncfx.schemes.masks.ranking import Largest, largest
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
    kept = ranked_parts(parts, level, scope, minimum)
    if isinstance(align, int | str | Alignment | Target):
        align = [resolve_alignment(align)] * len(parts)
    if all(one.multiple == 1 for one in align):
        return [one.mask() for one in kept]
    widths = entries or [1] * len(parts)

    def aligned(found: Sequence[Largest]) -> list[int]:
        return [
            aligned_count(one.count, part.numel(), own, each=each, minimum=max(minimum, 1))
            for one, part, own, each in zip(found, parts, align, widths, strict=True)
        ]

    if scope == "global" and not align[0].down:
        low, high = 0, kept_count(sum(part.numel() for part in parts), level)
        target = high
        while low < high:  # for the fewest that leave at least the target after aligning
            middle = (low + high) // 2
            if sum(aligned(largest_together(parts, middle, minimum))) >= target:
                high = middle
            else:
                low = middle + 1
        kept = largest_together(parts, high, minimum)
    return [
        one.mask() if one.count == wanted else largest(part, wanted)
        for part, one, wanted in zip(parts, kept, aligned(kept), strict=True)
    ]

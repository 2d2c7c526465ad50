"""Condensa's operators and schemes, and the masks that every pruning algorithm shares."""

from nncfx.schemes.criteria import CRITERIA, Criterion
from nncfx.schemes.masks import (
    MaskScope,
    group_masks,
    group_scores,
    keep_groups,
    kept_count,
    magnitude_mask,
)

__all__ = [
    "CRITERIA",
    "Criterion",
    "MaskScope",
    "group_masks",
    "group_scores",
    "keep_groups",
    "kept_count",
    "magnitude_mask",
]

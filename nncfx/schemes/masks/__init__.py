"""Which weights and channels stay: scores, rankings, and masks with exact counts."""

from nncfx.schemes.masks.exact_masks import check_at_least

__all__ = ["check_at_least"]

"""The largest entries of several tensors together: exact counts without sorting."""

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["largest", "largest_of_all"]

_DIRECT = 1 << 20
"""So many entries are ranked at once; more are bracketed by a sample first."""

_SAMPLE = 1 << 18
"""About so many entries are in the sample."""


def largest(values: Tensor, count: int) -> Tensor:
    """Return the mask of the `count` largest of flat `values`; of equal ones, the earlier."""
    return largest_of_all([values], count)[0]


def largest_of_all(parts: Sequence[Tensor], count: int) -> list[Tensor]:
    """Return the masks of the `count` largest entries of flat `parts` together.

    Of equal entries the earlier stays: parts in their order, entries in theirs. A `count` outside
    [0, n] means none or all of the n entries. No entry may be NaN.
    """
    total = sum(part.numel() for part in parts)
    if count >= total:
        return [torch.ones_like(part, dtype=torch.bool) for part in parts]
    if count <= 0:
        return [torch.zeros_like(part, dtype=torch.bool) for part in parts]
    dtype = functools.reduce(torch.promote_types, (part.dtype for part in parts))
    # comparing with a number takes the tensor's type, in which the number may not be exact
    ranked = [part.to(dtype) for part in parts]
    threshold = _kth_largest(ranked, count)
    masks = [part >= threshold for part in ranked]
    surplus = sum(_ones(mask) for mask in masks) - count
    for part, mask in zip(reversed(ranked), reversed(masks), strict=True):
        if surplus <= 0:
            break
        ties = (part == threshold).nonzero().flatten()[-surplus:]
        mask[ties] = False
        surplus -= ties.numel()
    return masks


def _kth_largest(parts: Sequence[Tensor], count: int) -> float:
    """Return the `count`-th largest entry of `parts`, 1 the largest.

    A sample gives an interval that all but surely holds it; one pass counts what lies above and
    collects what lies within. Where the sample misled, the side where the entry is, is ranked.
    """
    total = sum(part.numel() for part in parts)
    if total <= _DIRECT:
        return _direct(_joined(parts), count)
    # pieces that stay in the cache from one comparison to the next
    parts = [piece for part in parts for piece in torch.split(part, _DIRECT)]
    share = count / total
    low, high = _bracket(parts, share)
    half = 0.5
    # the smaller side is collected, so that all that follows looks at few entries
    if share <= half:
        near = _joined([part[part >= low] for part in parts])
        above = _ones(near > high)
        below = total - near.numel()
    else:
        near = _joined([part[part <= high] for part in parts])
        above = total - near.numel()
        below = _ones(near < low)
    if above >= count:
        return _direct(_joined([part[part > high] for part in parts]), count)
    if count > total - below:
        rest = _joined([part[part < low] for part in parts])
        return _direct(rest, count - (total - below))
    if low == high:
        return low
    return _direct(near[(near >= low) & (near <= high)], count - above)


def _bracket(parts: Sequence[Tensor], share: float) -> tuple[float, float]:
    """Return an interval around the entry that `share` of all entries exceed."""
    stride = math.ceil(sum(part.numel() for part in parts) / _SAMPLE)
    sample = _joined([part[::stride] for part in parts]).sort(descending=True).values
    n = sample.numel()
    # five standard deviations of a binomial count, were the sample drawn at random
    margin = 5 * math.sqrt(n * share * (1 - share)) + 5
    first, last = math.floor(share * n - margin), math.ceil(share * n + margin)
    return float(sample[min(last, n - 1)]), float(sample[max(first, 0)])


def _direct(values: Tensor, count: int) -> float:
    """Return the `count`-th largest of `values`."""
    n = values.numel()
    if count == 1:
        return float(values.max())
    return float(torch.kthvalue(values, n - count + 1).values)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.to(parts[0].device) for part in parts])


def _ones(mask: Tensor) -> int:
    # seven times as fast as a sum, which counts in 64 bits
    return int(torch.count_nonzero(mask))

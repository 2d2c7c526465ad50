"""The largest entries of several tensors together: exact counts without sorting."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, final

import torch
from torch import Tensor

from nncfx.schemes.wide_floats import wide

_DIRECT = 1 << 20
"""The most entries that are ranked directly; more are bracketed by a sample first."""

_SAMPLE = 1 << 18
"""The approximate size of the sample."""


@final
class Magnitudes:
    """The magnitudes of a tensor's entries, flat; computed piece by piece on every read.

    Args:
        tensor: `n` entries.
        is_normed: whether to divide by the Euclidean norm, unless it is zero.
    """

    def __init__(self, tensor: Tensor, *, is_normed: bool) -> None:
        self._entries = tensor.detach().flatten()
        self._norm: Tensor | None = None
        self.dtype = self._entries.dtype
        if is_normed:
            norm = torch.linalg.vector_norm(wide(self._entries))
            self._norm = torch.where(norm == 0, torch.ones_like(norm), norm)
            self.dtype = norm.dtype

    def numel(self) -> int:
        """Return the number of entries."""
        return self._entries.numel()

    def has_nan(self) -> bool:
        """Return whether any entry is NaN."""
        if self._norm is not None:
            return bool(self._norm.isnan())
        # the maximum of entries with a NaN is NaN, and takes one pass
        pieces = torch.split(self._entries, _DIRECT) if self.numel() else ()
        return any(bool(torch.isnan(one.max())) for one in pieces)

    def pieces(self) -> Iterator[Tensor]:
        """Yield the pieces in order."""
        for one in torch.split(self._entries, _DIRECT):
            piece = one.abs() if self._norm is None else wide(one.abs())
            yield piece if self._norm is None else piece.div_(self._norm)


Part: TypeAlias = Tensor | Magnitudes


@final
class Largest:
    """The entries of a part that are among the largest: those from a threshold on.

    Attributes:
        count: how many.
    """

    def __init__(self, part: Part, dtype: torch.dtype, threshold: float) -> None:
        self._part, self._dtype, self._threshold = part, dtype, threshold
        self._ties: int | None = None  # how many entries equal to the threshold count; None: all
        self.count = sum(_ones(one >= threshold) for one in self._pieces())

    def drop(self, surplus: int) -> int:
        """Drop the last `surplus` entries equal to the threshold; return how many were dropped."""
        if surplus <= 0:
            return 0
        ties = sum(_ones(one == self._threshold) for one in self._pieces())
        gone = min(ties, surplus)
        self._ties = ties - gone
        self.count -= gone
        return gone

    def masks(self) -> Iterator[Tensor]:
        """Yield the mask of the part, piece by piece in order."""
        left = self._ties
        for piece in self._pieces():
            mask = piece >= self._threshold
            if left is not None:
                ties = (piece == self._threshold).nonzero().flatten()
                mask[ties[left:]] = False
                left = max(left - len(ties), 0)
            yield mask

    def mask(self) -> Tensor:
        """Return the mask of the part."""
        pieces = list(self.masks())
        return torch.cat(pieces) if len(pieces) != 1 else pieces[0]

    def _pieces(self) -> Iterator[Tensor]:
        return _pieces([self._part], self._dtype)


def largest(values: Part, count: int) -> Tensor:
    """Return the mask of the `count` largest of flat `values`; among equal ones, the earlier."""
    return ranked_together([values], count)[0].mask()


def ranked_together(parts: Sequence[Part], count: int) -> list[Largest]:
    """Return the `count` largest entries of flat `parts` together.

    Among equal entries the earlier is kept: parts in their order, entries in theirs. A `count`
    outside [0, n] means none or all of the n entries. No entry may be NaN.
    """
    dtype = _dtype(parts)
    if count >= sum(part.numel() for part in parts):
        return [Largest(part, dtype, -math.inf) for part in parts]
    if count <= 0:
        # nothing exceeds infinity, and entries equal to it are dropped
        none = [Largest(part, dtype, math.inf) for part in parts]
        for one in none:
            one.drop(one.count)
        return none
    threshold = kth_largest(parts, count)
    found = [Largest(part, dtype, threshold) for part in parts]
    surplus = sum(one.count for one in found) - count
    for one in reversed(found):
        surplus -= one.drop(surplus)
    return found


def kth_largest(parts: Sequence[Part], count: int) -> float:
    """Return the `count`-th largest entry of flat `parts` together, from 1; no entry is NaN."""
    sizes = [
        min(_DIRECT, part.numel() - start)
        for part in parts
        for start in range(0, part.numel(), _DIRECT)
    ]
    return _kth_largest(lambda: _pieces(parts, _dtype(parts)), sizes, count)


def _dtype(parts: Iterable[Part]) -> torch.dtype:
    return functools.reduce(torch.promote_types, (part.dtype for part in parts))


def _pieces(parts: Iterable[Part], dtype: torch.dtype) -> Iterator[Tensor]:
    """Yield parts in pieces that stay in the cache between comparisons."""
    # comparison with a number uses the tensor's dtype, which may not represent the number exactly
    return (one.to(dtype) for part in parts for one in _split(part))


def _split(part: Part) -> Iterable[Tensor]:
    return torch.split(part, _DIRECT) if isinstance(part, Tensor) else part.pieces()


def _kth_largest(
    pieces: Callable[[], Iterable[Tensor]], sizes: Sequence[int], count: int
) -> float:
    """Return the `count`-th largest entry, counted from 1.

    A sample gives an interval that almost surely contains it; one pass counts the entries above
    and collects the entries within. If the sample was misleading, the side that contains the entry
    is ranked.
    """
    total = sum(sizes)
    if total <= _DIRECT:
        return _direct(_joined(list(pieces())), count)
    low, high, likely = _bracket(pieces, sizes, count / total)
    above, within, near = _between(pieces, low, high, likely)
    if within > len(near) and low < high:
        near = _between(pieces, low, high, within)[2]
    if above >= count:
        return _direct(_joined([one[one > high] for one in pieces()]), count)
    if count > above + within:
        return _direct(_joined([one[one < low] for one in pieces()]), count - above - within)
    return low if low == high else _direct(near[:within], count - above)


def _between(
    pieces: Callable[[], Iterable[Tensor]], low: float, high: float, room: int
) -> tuple[int, int, Tensor]:
    """Return how many entries exceed `high`, how many lie in [low, high], and `room` of these."""
    above = within = 0
    near: Tensor | None = None
    for one in pieces():
        if near is None:
            # allocate once: memory kept between pieces would leave holes as large as pieces
            near = one.new_empty(room)
        is_in = (one >= low) & (one <= high)
        above += _ones(one > high)
        count = _ones(is_in)
        if low < high and within + count <= room:
            near[within : within + count] = one[is_in].to(near.device)
        within += count
    assert near is not None  # noqa: S101 (there are entries)
    return above, within, near


def _bracket(
    pieces: Callable[[], Iterable[Tensor]], sizes: Sequence[int], share: float
) -> tuple[float, float, int]:
    """Return an interval around the entry that the fraction `share` of all entries exceeds.

    Also returns the most entries that are likely to lie in it.
    """
    total = sum(sizes)
    stride = math.ceil(total / _SAMPLE)
    sample: Tensor | None = None
    n = 0
    for one in pieces():
        if sample is None:
            sample = one.new_empty(sum(math.ceil(size / stride) for size in sizes))
        taken = one[::stride]
        sample[n : n + len(taken)] = taken.to(sample.device)
        n += len(taken)
    assert sample is not None  # noqa: S101 (there are entries)
    ranked = sample[:n].sort(descending=True).values
    # five standard deviations of a binomial count, as if the sample were random
    margin = 5 * math.sqrt(n * share * (1 - share)) + 5
    first, last = math.floor(share * n - margin), math.ceil(share * n + margin)
    likely = min(total, math.ceil(4 * margin * total / n))
    return float(ranked[min(last, n - 1)]), float(ranked[max(first, 0)]), likely


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

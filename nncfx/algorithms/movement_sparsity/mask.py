"""Masks of weights whose learned scores are at least a threshold."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.controllers.masks.exact_hook import ExactHook, fractions
from nncfx.schemes.masks.ranking import kth_largest


def threshold_at(level: float, importances: Sequence[tuple[Tensor, int]]) -> float:
    """Return the threshold that masks at most `level` of all entries; none if all are equal.

    Args:
        level: In [0, 1).
        importances: The scores of each weight, and the number of entries that share a score.

    >>> threshold_at(0.001, [(torch.arange(2000.0), 1)])
    2.0
    """
    shares = {n for _, n in importances}
    if len(shares) == 1:
        # runs at every step, and a search takes an eighth of the time of a sort
        count, share = sum(one.numel() for one, _ in importances), shares.pop()
        gone = int(count * share * level) // share
        return kth_largest([one.detach().flatten() for one, _ in importances], count - gone)
    scores, order, gone = _ranked(level, importances)
    return float(scores[order[gone]])


def keep_highest(level: float, importances: Sequence[tuple[Tensor, int]]) -> list[Tensor]:
    """Return which scores stay if as many entries are removed as fit into `level` of all.

    Of equal scores the later ones are removed: weights in their order, scores in row-major order.

    Args:
        level: In [0, 1).
        importances: The scores of each weight, and the number of entries that share a score.

    Returns:
        Bools of the scores' shapes.

    >>> keep_highest(0.5, [(torch.tensor([3.0, 1.0, 1.0]), 1), (torch.tensor([1.0]), 1)])
    [tensor([ True,  True, False]), tensor([False])]
    """
    scores, order, gone = _ranked(level, importances)
    stays = torch.ones_like(scores, dtype=torch.bool)
    stays[order[:gone]] = False
    parts = torch.split(stays, [one.numel() for one, _ in importances])
    return [part.view(one.shape) for part, (one, _) in zip(parts, importances, strict=True)]


def _ranked(level: float, importances: Sequence[tuple[Tensor, int]]) -> tuple[Tensor, Tensor, int]:
    """Return all scores, the order in which to remove them, and how many fit into `level`."""
    scores = torch.cat([one.detach().flatten() for one, _ in importances])
    shares = torch.cat(
        [torch.full_like(one.flatten(), n, dtype=torch.int64) for one, n in importances]
    )
    order = len(scores) - 1 - scores.flip(0).argsort(stable=True)
    passed = shares[order].cumsum(0)
    wanted = int(int(passed[-1]) * level) + 1
    return scores, order, int(torch.searchsorted(passed, wanted))


class _Masked(torch.autograd.Function):
    """A weight times its mask where scores are at least a threshold, else 0; straight-through.

    The gradient treats the threshold as if it were the score, in few passes over memory.
    """

    @staticmethod
    @override
    def forward(ctx: Any, weight: Tensor, importance: Tensor, hook: "MovementMask") -> Tensor:
        # FSDP may gather the weight in another dtype
        kept = hook.effective().to(weight.dtype)
        ctx.save_for_backward(weight, kept, hook.mask)
        ctx.shapes = importance.shape, hook.tiled
        return weight * kept

    @staticmethod
    @override
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weight, kept, mask = ctx.saved_tensors
        shape, tiled = ctx.shapes
        of_weight = grads[0] * kept if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return of_weight, None, None
        of_entries = (grads[0] * weight).to(mask.dtype).mul_(mask)
        return of_weight, of_entries.reshape(tiled).sum_to_size(shape), None


@final
class MovementMask(ExactHook):
    """Multiplies a weight by the threshold of its scores, and by a frozen mask.

    Attributes:
        importance: One score per block; each axis becomes two, the number of blocks and 1.
        threshold: Scores below it are masked; minus infinity before and after the warm-up.
        mask: Zeros and ones of the weight's shape; all ones until the warm-up ends.
        block: The extents of a block.
    """

    threshold: Tensor
    mask: Tensor

    def __init__(self, weight: Tensor, block: Sequence[int]) -> None:
        super().__init__()
        self.block = tuple(block)
        counts = [extent // size for extent, size in zip(weight.shape, block, strict=True)]
        shape = list(itertools.chain.from_iterable((count, 1) for count in counts))
        self.importance = nn.Parameter(weight.new_zeros(shape))
        self.register_buffer("threshold", weight.new_tensor(-math.inf))
        self.register_buffer("mask", torch.ones_like(weight))

    @override
    def forward(self, weight: Tensor) -> Tensor:
        masked: Tensor = _Masked.apply(weight, self.importance, self)  # type: ignore[no-untyped-call]  # torch
        return masked

    def effective(self) -> Tensor:
        """Return the mask of zeros and ones that multiplies the weight, without a gradient."""
        # converting bools to floats after the comparison takes three times as long
        scores = self.importance.detach()
        stays = torch.ge(scores, self.threshold, out=torch.empty_like(scores))
        return self.mask * self.spread(stays)

    def gone(self) -> int:
        """Return the number of masked entries."""
        stays = self.spread(self.importance.detach() >= self.threshold) & (self.mask != 0)
        return stays.numel() - int(torch.count_nonzero(stays))

    def freeze(self, mask: Tensor) -> None:
        """Fix the mask to `mask` and freeze the scores, which no longer matter."""
        self.mask.copy_(mask)
        self.threshold.fill_(-math.inf)
        self.importance.requires_grad_(False)
        self.importance.grad = None

    @override
    def _fault(self) -> str:
        # averaging minus infinity and a number gives no valid threshold
        return "A threshold is NaN" if self.threshold.isnan() else fractions(self.mask)

    def spread(self, values: Tensor) -> Tensor:
        """Return `values`, of the shape of the scores, expanded to the weight's shape."""
        return values.expand(self.tiled).reshape(self.mask.shape)

    @property
    def tiled(self) -> list[int]:
        """The weight's shape with each axis split into the number and the extent of blocks."""
        counts = self.importance.shape[::2]
        return list(itertools.chain.from_iterable(zip(counts, self.block, strict=True)))

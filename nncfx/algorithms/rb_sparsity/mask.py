"""Masks whose entries are learned as probabilities."""

import math
from collections.abc import Mapping
from typing import Any, Final, Self, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.schemes.wide_floats import wide

_CERTAIN = math.log(0.99 / 0.01)
_BITS: Final = 16
_LANES: Final = 4
"""16-bit numbers in a 64-bit number."""

_BLOCK: Final = 2**17
"""Entries processed at a time, since allocating memory for all costs more than computing them."""


def initial_scores(weight: Tensor) -> Tensor:
    """Return scores at which the largest weights are kept with a probability of 0.99.

    NNCF gives this score to all weights. Here scores rise with the magnitude, from half of it at 0
    to all of it at twice the mean magnitude, so small weights are removed first if the task does
    not depend on them. No score is higher, because the sigmoid's slope, which moves scores, would
    be too small to reach the level.

    >>> initial_scores(torch.tensor([0.0, 1.0, -1.0, 9.0])).round(decimals=1)
    tensor([2.3000, 2.7000, 2.7000, 4.6000])
    """
    magnitude = wide(weight).abs()
    mean = magnitude.mean()
    relative = magnitude / torch.where(mean > 0, mean, torch.ones_like(mean))
    return _CERTAIN * (0.5 + (relative / 4).clamp(max=0.5))


def threshold(scores: Tensor) -> Tensor:
    """Return 1 where a score is above 0, else 0, with the gradient of the sigmoid.

    >>> threshold(torch.tensor([-1.0, 0.0, 1.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    probability = torch.sigmoid(scores)
    # the difference is exactly zero and carries the gradient
    return (scores.detach() > 0).to(scores.dtype) + (probability - probability.detach())


def logistic_noise(like: Tensor) -> Tensor:
    """Return noise of the logistic distribution, of the shape, dtype and device of `like`.

    It comes from torch's generator of that device, as for dropout. On a CPU, each entry is the
    quantile of one of 2^16 equal parts of (0, 1), drawn with 16 random bits, because 32 bits
    would take four times as long.

    >>> torch.sigmoid(logistic_noise(torch.zeros(100_000))).mean().round(decimals=1)
    tensor(0.5000)
    """
    parts = 2**_BITS
    if torch.compiler.is_compiling() or like.device.type != "cpu":
        return torch.logit(torch.rand_like(like).clamp(0.5 / parts, 1 - 0.5 / parts))
    middles = torch.empty(like.numel(), dtype=like.dtype, device="cpu")
    lanes = min(_BLOCK, like.numel() + _LANES) // _LANES
    packed = torch.empty(lanes, dtype=torch.int64, device="cpu")
    for block in torch.split(middles, _BLOCK):
        # without an upper bound all 64 bits are random
        drawn = packed[: -(-block.numel() // _LANES)].random_(-(2**63), None)
        block.copy_(drawn.view(torch.int16)[: block.numel()])
    return middles.add_((parts + 1) / 2).mul_(1 / parts).logit_().view_as(like)


class _Kept(torch.autograd.Function):
    """Keeps entries of a weight where `noisy`, its scores plus noise, is above 0; zeroes others.

    The gradient is that of `weight * threshold(noisy)`, in fewer passes over memory.
    """

    @staticmethod
    @override
    def forward(ctx: Any, weight: Tensor, scores: Tensor, noisy: Tensor) -> Tensor:
        # relu's backward keeps entries where another tensor is above a threshold
        kept: Tensor = torch.ops.aten.threshold_backward(weight, noisy, 0).to(weight.dtype)
        # reuse the memory of the noisy scores, which are not read again; compilers do so anyway
        is_compiled = torch.compiler.is_compiling()
        ctx.save_for_backward(weight, noisy.sigmoid() if is_compiled else noisy.sigmoid_())
        return kept

    @staticmethod
    @override
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        weight, probability = ctx.saved_tensors
        of_scores = torch.ops.aten.sigmoid_backward(grads[0], probability).mul_(weight)
        return torch.ops.aten.threshold_backward(grads[0], probability, 0.5), of_scores, None


class _Count(torch.autograd.Function):
    """Counts the scores above 0, with the gradient of `threshold(scores).sum()`."""

    @staticmethod
    @override
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        ctx.save_for_backward(scores)
        one = scores.new_ones(1)
        is_compiled = torch.compiler.is_compiling()
        blocks = [scores] if is_compiled else torch.split(scores.reshape(-1), _BLOCK)
        # summing floats takes a quarter of the time of summing bools
        parts = [
            torch.ops.aten.threshold_backward(one.expand_as(block), block, 0).sum()
            for block in blocks
        ]
        return torch.stack(parts).sum()

    @staticmethod
    @override
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (scores,) = ctx.saved_tensors
        slope: Tensor = scores.sigmoid()
        slope.addcmul_(slope, slope, value=-1)
        return slope.mul_(grads[0])


@final
class LearnedMask(nn.Module):
    """Multiplies a weight by the threshold of its scores.

    In training mode logistic noise is added to the scores, which keeps a weight with probability
    sigmoid(score).

    Attributes:
        scores: One per entry of the weight.
        is_active: Whether the mask is applied; if not, the weight passes bitwise.
        is_noisy: Whether training adds noise to the scores.
        flags: Both flags as a tensor, for the `state_dict`.
    """

    flags: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.scores = nn.Parameter(initial_scores(weight))
        # floats, so code that averages all buffers can average them
        self.register_buffer("flags", torch.tensor([0.0, 1.0], device=weight.device))
        self.is_active, self.is_noisy = False, True

    @override
    def forward(self, weight: Tensor) -> Tensor:
        if self.training and self.is_noisy:
            fixed = self.scores.detach()
            if self.is_active:
                noisy = logistic_noise(fixed).add_(fixed)
            else:
                # keep all, with a gradient of zeros for the scores, since DistributedDataParallel
                # rejects parameters that are in the loss but not used in the forward
                noisy = fixed.new_full((), math.inf)
            kept: Tensor = _Kept.apply(weight, self.scores, noisy)  # type: ignore[no-untyped-call]  # torch
            return kept
        if not self.is_active:
            return weight
        return weight * threshold(self.scores).to(weight.dtype)

    def removed(self) -> int:
        """Return the number of removed entries, without noise."""
        return int((self.scores <= 0).sum()) if self.is_active else 0

    def kept(self) -> Tensor:
        """Return the number of kept entries, without noise, with a gradient to the scores."""
        kept: Tensor = _Count.apply(self.scores)  # type: ignore[no-untyped-call]  # torch
        # a gradient of zeros, which distributed training waits for
        return kept if self.is_active else kept * 0 + self.scores.numel()

    def set_active(self, *, is_active: bool) -> None:
        """Turn the mask on or off."""
        self._set(is_active=is_active, is_noisy=self.is_noisy)

    def freeze(self) -> None:
        """Freeze the scores, without noise or gradients."""
        self._set(is_active=self.is_active, is_noisy=False)
        self.scores.requires_grad_(False)
        self.scores.grad = None

    @torch.no_grad()
    def settle(self, stays: Tensor) -> None:
        """Keep exactly the entries where `stays`, of the shape of the scores, is True."""
        above = self.scores.clamp(min=torch.finfo(self.scores.dtype).tiny)
        self.scores.copy_(torch.where(stays, above, self.scores.clamp(max=0)))

    def _set(self, *, is_active: bool, is_noisy: bool) -> None:
        self.is_active, self.is_noisy = is_active, is_noisy
        self.flags.copy_(torch.tensor([is_active, is_noisy], device="cpu"))

    @override
    def train(self, mode: bool = True) -> Self:
        """Set the mode and reread the flags, whose buffer an average of models may overwrite."""
        self._read_flags()
        return super().train(mode)

    def _read_flags(self) -> None:
        if not self.flags.is_meta:
            self.is_active, self.is_noisy = (one > 0 for one in self.flags.tolist())

    @override
    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *rest: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if f"{prefix}flags" in state_dict:
            self._read_flags()

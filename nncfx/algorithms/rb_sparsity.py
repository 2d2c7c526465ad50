"""Regularization-based sparsity: which weights go is learned, under a loss that asks how many.

Every weight has a score; it stays while the score is above 0, and in training with the
probability sigmoid(score). The gradient passes the threshold as if it were the sigmoid.

Source: NNCF 2.19, "RB-sparsity"; Louizos et al., "Learning sparse neural networks through L0
regularization", 2017, from which it takes the idea.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Self, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.config import RBSparsityConfig
from nncfx.controllers import (
    Builder,
    CompressionLoss,
    Controller,
    SparsityStatistics,
    plan_on_weights,
    register_algorithm,
    sparsity_scheduler,
    sparsity_statistics,
)
from nncfx.controllers.base.weights import aliases
from nncfx.network import NNCFNetwork
from nncfx.schemes.wide_floats import wide
from nncfx.tracing import Insertion

__all__ = [
    "LearnedMask",
    "RBLoss",
    "RBSparsityBuilder",
    "RBSparsityController",
    "initial_scores",
    "logistic_noise",
    "threshold",
]

ALGORITHM = RBSparsityConfig.algorithm
_WIDTH = 0.05
"""The distance from the level at which the loss is 1 (NNCF's p)."""

_CERTAIN = math.log(0.99 / 0.01)
_BITS: Final = 16
_LANES: Final = 4
"""Numbers of 16 bits in one of 64."""
_BLOCK: Final = 2**17
"""Entries whose intermediate values are held at once: fresh memory for all of them costs more than
to compute them."""


def initial_scores(weight: Tensor) -> Tensor:
    """Return scores at which weights stay with a probability of about 0.99.

    NNCF gives all the same score. Here the score rises with the magnitude relative to the mean
    one, from half to three halves of it, so that small weights are the first to go where the task
    has no say.

    >>> initial_scores(torch.tensor([0.0, 1.0, -1.0, 9.0])).round(decimals=1)
    tensor([2.3000, 3.1000, 3.1000, 6.9000])
    """
    magnitude = wide(weight).abs()
    mean = magnitude.mean()
    relative = magnitude / torch.where(mean > 0, mean, torch.ones_like(mean))
    return _CERTAIN * (0.5 + (relative / 2).clamp(max=1))


def threshold(scores: Tensor) -> Tensor:
    """Return 1 where a score is above 0, else 0; the gradient is that of the sigmoid.

    >>> threshold(torch.tensor([-1.0, 0.0, 1.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    probability = torch.sigmoid(scores)
    # the difference is zero exactly, and carries the gradient
    return (scores.detach() > 0).to(scores.dtype) + (probability - probability.detach())


def logistic_noise(like: Tensor) -> Tensor:
    """Return noise of the logistic distribution, of the shape, dtype and device of `like`.

    It comes from torch's generator of that device, as dropout's does. On a CPU, where 32 random
    bits an entry would take four times as long, it is the quantile of one of 2^16 equal parts of
    (0, 1), drawn with 16.

    >>> torch.sigmoid(logistic_noise(torch.zeros(100_000))).mean().round(decimals=1)
    tensor(0.5000)
    """
    parts = 2**_BITS
    if torch.compiler.is_compiling() or like.device.type != "cpu":
        return torch.logit(torch.rand_like(like).clamp(0.5 / parts, 1 - 0.5 / parts))
    middles = torch.empty(like.numel(), dtype=like.dtype)
    packed = torch.empty(min(_BLOCK, like.numel() + _LANES) // _LANES, dtype=torch.int64)
    for block in torch.split(middles, _BLOCK):
        # without an upper end all 64 bits are drawn
        lanes = packed[: -(-block.numel() // _LANES)].random_(-(2**63), None)
        block.copy_(lanes.view(torch.int16)[: block.numel()])
    return middles.add_((parts + 1) / 2).mul_(1 / parts).logit_().view_as(like)


class _Kept(torch.autograd.Function):
    """Entries of a weight where `noisy`, its scores and noise, is above 0; the others are 0.

    The gradient is that of `weight * threshold(noisy)`, in fewer passes over memory.
    """

    @staticmethod
    @override
    def forward(ctx: Any, weight: Tensor, scores: Tensor, noisy: Tensor) -> Tensor:
        # relu's backward keeps what stands where another tensor is above a number
        kept: Tensor = torch.ops.aten.threshold_backward(weight, noisy, 0)
        # in the memory of the noisy scores, which nobody else reads; compilers do that themselves
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
    """How many scores are above 0, with the gradient of `threshold(scores).sum()`."""

    @staticmethod
    @override
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        ctx.save_for_backward(scores)
        one = scores.new_ones(1)
        is_compiled = torch.compiler.is_compiling()
        blocks = [scores] if is_compiled else torch.split(scores.reshape(-1), _BLOCK)
        # a sum of floats takes a fourth of the time of one of bools
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

    In training mode the scores are disturbed by logistic noise, which keeps a weight with the
    probability sigmoid(score).

    Attributes:
        scores: One per entry of the weight.
        is_active: Whether the mask counts; if not, all entries stay, bitwise.
        is_noisy: Whether training disturbs the scores.
        flags: Both as a tensor, for the `state_dict`.
    """

    flags: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.scores = nn.Parameter(initial_scores(weight))
        # floats can be averaged by whoever averages all buffers
        self.register_buffer("flags", torch.tensor([0.0, 1.0], device=weight.device))
        self.is_active, self.is_noisy = False, True

    @override
    def forward(self, weight: Tensor) -> Tensor:
        if not self.is_active:
            return weight
        if self.training and self.is_noisy:
            fixed = self.scores.detach()
            kept: Tensor = _Kept.apply(weight, self.scores, logistic_noise(fixed).add_(fixed))  # type: ignore[no-untyped-call]  # torch
            return kept
        return weight * threshold(self.scores)

    def removed(self) -> int:
        """Return how many entries go, without noise."""
        return int((self.scores <= 0).sum()) if self.is_active else 0

    def kept(self) -> Tensor:
        """Return how many entries stay, without noise, with a gradient to the scores."""
        kept: Tensor = _Count.apply(self.scores)  # type: ignore[no-untyped-call]  # torch
        # a gradient of zeros, which tools of distributed training wait for
        return kept if self.is_active else kept * 0 + self.scores.numel()

    def set_active(self, *, is_active: bool) -> None:
        """Let the mask count, or not."""
        self._set(is_active=is_active, is_noisy=self.is_noisy)

    def freeze(self) -> None:
        """Let the scores stand still: no noise, and no gradient that could move them."""
        self._set(is_active=self.is_active, is_noisy=False)
        self.scores.requires_grad_(False)
        self.scores.grad = None

    def _set(self, *, is_active: bool, is_noisy: bool) -> None:
        self.is_active, self.is_noisy = is_active, is_noisy
        self.flags.copy_(torch.tensor([is_active, is_noisy]))

    @override
    def train(self, mode: bool = True) -> Self:
        """Set the mode, and read the flags: buffers of a copy may follow those of the model."""
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


@final
class RBLoss(CompressionLoss):
    """The squared distance of the density from the one that is asked for, in units of 0.05.

    Attributes:
        masks: The learned masks, each once.
        is_local: Whether each of them has a density of its own; the loss is their mean then.
        level: The level that is asked for.
    """

    def __init__(self, masks: Sequence[LearnedMask], *, is_local: bool = False) -> None:
        self.masks = tuple(masks)
        self.is_local = is_local
        self.level = 0.0

    @override
    def __call__(self) -> Tensor:
        """Return `((kept / n - (1 - level)) / 0.05)^2`, with a gradient to all scores.

        It is 0 once the masks are frozen.
        """
        if not any(one.is_noisy for one in self.masks):
            return self.masks[0].scores.new_zeros(())
        sizes = [one.scores.numel() for one in self.masks]
        if self.is_local:
            shares = [one.kept() / size for one, size in zip(self.masks, sizes, strict=True)]
            density = torch.stack(shares)
        else:
            density = torch.stack([one.kept() for one in self.masks]).sum() / sum(sizes)
        return ((density - (1 - self.level)) / _WIDTH).square().mean()


@final
class RBSparsityController(Controller):
    """Asks, by its loss, for the level that its scheduler sets; training then brings it about.

    Attributes:
        config: The algorithm's config.
        masks: The learned masks by parameter.
    """

    needs_loss: ClassVar[bool] = True

    def __init__(
        self,
        model: nn.Module,
        config: RBSparsityConfig,
        masks: Mapping[str, LearnedMask],
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.masks = dict(masks)
        is_local = config.params.sparsity_level_setting_mode == "local"
        self._rb_loss = RBLoss(list(self.masks.values()), is_local=is_local)
        self.compression_loss = self._rb_loss
        self.level = config.sparsity_init
        self.scheduler = sparsity_scheduler(self, config.params, reached=self._reached)

    @override
    def _apply(self, level: float) -> None:
        self._rb_loss.level = level
        for mask in self.masks.values():
            mask.set_active(is_active=level > 0)

    @override
    def _epoch_begun(self, epoch: int) -> None:
        if epoch >= self.config.params.sparsity_freeze_epoch:
            for mask in self.masks.values():
                mask.freeze()

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._rb_loss.level = self.level
        self._epoch_begun(self.scheduler.schedule_epoch)

    @override
    def statistics(self) -> SparsityStatistics:
        gone = {name: one.removed() for name, one in self.masks.items()}
        return sparsity_statistics(self.model, gone, self.level)

    def _reached(self) -> float:
        return self.statistics().level


@final
@register_algorithm(RBSparsityConfig)
class RBSparsityBuilder(Builder[RBSparsityConfig]):
    """Plans a learned mask on every weight of convolutions, linear layers and embeddings."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        return plan_on_weights(self, model, LearnedMask)

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> RBSparsityController:
        names = aliases(model)
        masks = {
            names[str(one.site)][0]: one.hook
            for one in insertions
            if isinstance(one.hook, LearnedMask)
        }
        return RBSparsityController(model, self.config, masks)

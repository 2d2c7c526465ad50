"""SGD with Nesterov momentum as in L-C: the velocity includes the learning rate."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import override

OptimizerFactory: TypeAlias = Callable[[list[nn.Parameter], float], Optimizer]
"""Builds an optimizer from parameters and an initial learning rate."""


class Nesterov(Optimizer):
    """`v <- m v - lr g; w <- w - lr g + m v`.

    With a constant learning rate this equals `torch.optim.SGD(nesterov=True)`. When the learning
    rate falls, past steps keep their length, while torch rescales them.

    Args:
        params: The parameters to train.
        lr: Learning rate, above 0.
        momentum: m, in [0, 1).
        weight_decay: Factor of the weight that is added to its gradient.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
    ) -> None:
        """Group the parameters under these settings."""
        settings = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, settings)

    @override
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override] # torch overloads step on None
        """Update every parameter that has a gradient; return the closure's loss, if any."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            trained: list[Tensor] = [p for p in group["params"] if p.grad is not None]
            if trained:
                self._move(trained, group)
        return loss

    def _move(self, weights: list[Tensor], group: dict[str, float]) -> None:
        gradients: list[Tensor] = [p.grad for p in weights if p.grad is not None]
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, weights, alpha=group["weight_decay"]))  # noqa: SLF001 (one call for all)
        velocities = [self.state[p].setdefault("velocity", torch.zeros_like(p)) for p in weights]
        torch._foreach_mul_(velocities, group["momentum"])
        torch._foreach_add_(velocities, gradients, alpha=-group["lr"])
        torch._foreach_add_(weights, gradients, alpha=-group["lr"])
        torch._foreach_add_(weights, velocities, alpha=group["momentum"])

"""The augmented Lagrangian of `min L(w) subject to w = theta`, on a model's constrained weights.

The terms beside the loss are `mu/2 |w - theta|^2 - lambda . (w - theta)`.
Source: Carreira-Perpinan and Idelbayev (2018), "Learning-Compression" algorithms, section 3.
"""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

__all__ = ["Lagrangian", "augmented_penalty", "next_mu"]


def augmented_penalty(weight: Tensor, theta: Tensor, multiplier: Tensor, mu: float) -> Tensor:
    """Return `mu/2 |w - theta|^2 - lambda . (w - theta)`, differentiable in `weight`.

    >>> one, zero = torch.tensor([1.0]), torch.tensor([0.0])
    >>> augmented_penalty(3 * one, one, zero, 0.5).item()
    1.0
    """
    gap = weight - theta
    return 0.5 * mu * gap.square().sum() - (multiplier * gap).sum()


def next_mu(mu: float, *, initial: float, multiplier: float, cap: float) -> float:
    """Return the penalty parameter of the next iteration.

    It starts at 0 (the first iteration has no penalty), then comes `initial`, then each time
    `multiplier` times as much, until it exceeds `cap` (which the last value may do once).

    >>> next_mu(0.0, initial=1e-3, multiplier=1.1, cap=1e4)
    0.001
    """
    if mu > cap:
        return mu
    return mu * multiplier if mu else initial


class Lagrangian:
    """Constrained weights of a model with their compressed values and multipliers.

    Attributes:
        mu: The penalty parameter; 0 means no penalty.
    """

    def __init__(
        self, model: nn.Module, names: Iterable[str], *, multipliers: bool = True
    ) -> None:
        """Watch the trainable parameters of `model` among `names`; theta and lambda start at 0.

        Frozen parameters are left out: their multipliers would grow for ever, since training
        cannot bring the weights to theta.
        """
        wanted = frozenset(names)
        self._weights = {
            name: p for name, p in model.named_parameters() if name in wanted and p.requires_grad
        }
        self._thetas = {n: torch.zeros_like(p) for n, p in self._weights.items()}
        self._multipliers = {n: torch.zeros_like(p) for n, p in self._weights.items()}
        self._has_multipliers = multipliers
        self._offsets: dict[str, Tensor] = {}
        self.mu = 0.0

    @torch.no_grad()
    def add_gradient(self) -> None:
        """Add `mu (w - theta) - lambda` to the gradients; a weight without a gradient stays so."""
        if self.mu == 0:
            return
        if not self._offsets:
            # mu theta + lambda is constant between two C steps
            self._offsets = {
                name: theta.mul(self.mu).add_(self._multipliers[name])
                for name, theta in self._thetas.items()
            }
        terms = [
            (p.grad, p, self._offsets[name])
            for name, p in self._weights.items()
            if p.grad is not None
        ]
        if terms:
            gradients, weights, offsets = (list(column) for column in zip(*terms, strict=True))
            torch._foreach_add_(gradients, weights, alpha=self.mu)
            torch._foreach_sub_(gradients, offsets)

    @torch.no_grad()
    def shift(self, model: nn.Module) -> None:
        """Set the constrained weights of a copy of the model to `w - lambda / mu`, if mu > 0."""
        if self.mu == 0:
            return
        targets = dict(model.named_parameters())
        for name, weight in self._weights.items():
            targets[name].copy_(weight - self._multipliers[name] / self.mu)

    @torch.no_grad()
    def update(self, thetas: Mapping[str, Tensor]) -> None:
        """Take the compressed values, then move the multipliers: `lambda -= mu (w - theta)`."""
        for name, weight in self._weights.items():
            self._thetas[name] = thetas[name].detach().to(weight.dtype, copy=True)
            if self._has_multipliers and self.mu:
                self._multipliers[name].sub_(weight - self._thetas[name], alpha=self.mu)
        self._offsets = {}

    @torch.no_grad()
    def distance(self) -> float:
        """Return `|w - theta|` over all constrained weights."""
        pairs = ((weight, self._thetas[name]) for name, weight in self._weights.items())
        return math.sqrt(sum(float((w - theta).square().sum()) for w, theta in pairs))

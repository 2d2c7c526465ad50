"""The augmented Lagrangian of `min L(w) subject to w = theta`, on a model's constrained weights.

The terms added to the loss are `mu/2 |w - theta|^2 - lambda . (w - theta)`.
Source: Carreira-Perpinan and Idelbayev (2018), "Learning-Compression" algorithms, section 3.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from nncfx.schemes.wide_floats import wide
from nncfx.storage.models.sharded_models import like_shards, whole

Penalized: TypeAlias = Literal["weights", "all"]
"""Which of the constrained parameters the penalty pulls: "weights" are those with at least two
axes, while biases and norms only follow the loss; "all" is the Lagrangian as written."""


def is_penalized(parameter: Tensor, penalize: Penalized) -> bool:
    """Return whether the penalty pulls a constrained `parameter`; False for frozen ones.

    The multipliers of a frozen parameter would grow forever, since training cannot bring it to
    theta.
    """
    return parameter.requires_grad and (penalize == "all" or parameter.ndim > 1)


def augmented_penalty(weight: Tensor, theta: Tensor, multiplier: Tensor, mu: float) -> Tensor:
    """Return `mu/2 |w - theta|^2 - lambda . (w - theta)`, differentiable in `weight`.

    >>> one, zero = torch.tensor([1.0]), torch.tensor([0.0])
    >>> augmented_penalty(3 * one, one, zero, 0.5).item()
    1.0
    """
    gap = wide(weight) - wide(theta)
    return 0.5 * mu * gap.square().sum() - (multiplier * gap).sum()


def next_mu(mu: float, *, initial: float, multiplier: float, cap: float) -> float:
    """Return the penalty parameter of the next iteration.

    It starts at 0 (the first iteration has no penalty), continues with `initial`, and is then
    multiplied by `multiplier` until it exceeds `cap` (which the last value may do once).

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
        self,
        weights: Mapping[str, nn.Parameter],
        thetas: Mapping[str, Tensor],
        multipliers: Mapping[str, Tensor] | None,
        mu: float = 0.0,
    ) -> None:
        """Tie `weights` to `thetas`; without `multipliers` it is the quadratic penalty.

        The tensors are kept, not copied; `update` writes to `thetas` and `multipliers` in place.
        """
        self._weights = dict(weights)
        self._thetas = dict(thetas)
        self._multipliers = None if multipliers is None else dict(multipliers)
        self._offsets: dict[str, Tensor] = {}
        self.mu = mu

    @classmethod
    def of(
        cls,
        model: nn.Module,
        names: Iterable[str],
        *,
        multipliers: bool = True,
        penalize: Penalized = "all",
    ) -> "Lagrangian":
        """Return the Lagrangian of the penalized parameters among `names`, starting from zero."""
        wanted = frozenset(names)
        weights = {
            name: p
            for name, p in model.named_parameters()
            if name in wanted and is_penalized(p, penalize)
        }
        zeros = [{n: torch.zeros_like(p) for n, p in weights.items()} for _ in range(2)]
        return cls(weights, zeros[0], zeros[1] if multipliers else None)

    def in_shards(self) -> "Lagrangian":
        """Return the same, with compressed values and multipliers sharded like the weights."""

        def divided(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: like_shards(tensors[name], p) for name, p in self._weights.items()}

        multipliers = None if self._multipliers is None else divided(self._multipliers)
        return Lagrangian(self._weights, divided(self._thetas), multipliers, self.mu)

    def penalty(self) -> Tensor:
        """Return the terms added to the loss, a scalar with a gradient to all weights."""
        terms = [
            whole(augmented_penalty(weight, self._thetas[name], self._multiplier(name), self.mu))
            for name, weight in self._weights.items()
        ]
        # if all constrained weights are frozen, there is nothing to pull
        return torch.stack(terms).sum() if terms else torch.zeros((), device="cpu")

    @torch.no_grad()
    def add_gradient(self) -> None:
        """Add `mu (w - theta) - lambda` to the gradients; skip weights without a gradient."""
        if self.mu == 0:
            return
        if not self._offsets:
            # mu theta + lambda is constant between C steps
            self._offsets = {
                name: theta.mul(self.mu).add_(self._multiplier(name))
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
            targets[name].copy_(weight - self._multiplier(name) / self.mu)

    @torch.no_grad()
    def update(self, thetas: Mapping[str, Tensor]) -> None:
        """Store the compressed values, then update the multipliers: `lambda -= mu (w - theta)`."""
        for name, weight in self._weights.items():
            self._thetas[name].copy_(thetas[name])
            if self._multipliers is not None and self.mu:
                self._multipliers[name].sub_(weight - self._thetas[name], alpha=self.mu)
        self._offsets = {}

    def state(self) -> dict[str, Tensor]:
        """Return compressed values and multipliers, named `theta:NAME` and `lambda:NAME`."""
        found = {f"theta:{name}": theta for name, theta in self._thetas.items()}
        multipliers = self._multipliers or {}
        return found | {f"lambda:{name}": one for name, one in multipliers.items()}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor], mu: float) -> None:
        """Load the result of `state`, and the penalty parameter saved with it."""
        for key, tensor in self.state().items():
            tensor.copy_(state[key])
        self._offsets = {}
        self.mu = mu

    @torch.no_grad()
    def distance(self) -> float:
        """Return `|w - theta|` over all constrained weights."""
        pairs = ((weight, self._thetas[name]) for name, weight in self._weights.items())
        return math.sqrt(sum(float((wide(w) - wide(theta)).square().sum()) for w, theta in pairs))

    def _multiplier(self, name: str) -> Tensor:
        if self._multipliers is None:
            return self._thetas[name].new_zeros(())
        return self._multipliers[name]

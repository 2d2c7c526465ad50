"""The penalty of L-C in the user's own loop: pulls weights to their compressed values."""

from collections.abc import Mapping
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.controllers import CompressionLoss
from nncfx.controllers.base.weights import raw_parameters
from nncfx.lc.lagrangian import Lagrangian, Penalized, is_penalized


@final
class CompressedWeight(nn.Module):
    """Returns the weight itself in training mode, and its compressed value in evaluation mode.

    Attributes:
        theta: The compressed value, in the weight's dtype.
        multiplier: The Lagrange multiplier; stays zero under the quadratic penalty.
        is_of_weight: Marks the output as specific to one model's weight, not valid for averages.
    """

    is_of_weight: ClassVar[bool] = True
    theta: Tensor
    multiplier: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("theta", weight.clone())
        self.register_buffer("multiplier", torch.zeros_like(weight))

    @override
    def forward(self, weight: Tensor) -> Tensor:
        # FSDP can gather the weight in another dtype
        return weight if self.training else self.theta.to(weight.dtype)


@final
class PenaltyLoss(CompressionLoss):
    """`mu/2 |w - theta|^2 - lambda . (w - theta)` over the penalized weights.

    Attributes:
        model: The wrapped model.
        hooks: The compressed weights by parameter.
        mu: The penalty parameter; 0 before the first compression.
        has_multipliers: Whether lambda is used.
        penalize: Which of the parameters are penalized.
    """

    def __init__(
        self,
        model: nn.Module,
        hooks: Mapping[str, CompressedWeight],
        *,
        has_multipliers: bool,
        penalize: Penalized,
    ) -> None:
        self.model = model
        self.hooks = dict(hooks)
        self.mu = 0.0
        self.has_multipliers = has_multipliers
        self.penalize: Penalized = penalize

    def lagrangian(self) -> Lagrangian:
        """Return the Lagrangian over the current tensors, which `.to()` may have replaced."""
        weights = {
            name: one
            for name, one in raw_parameters(self.model).items()
            if name in self.hooks and is_penalized(one, self.penalize)
        }
        thetas = {name: self.hooks[name].theta for name in weights}
        multipliers = {name: self.hooks[name].multiplier for name in weights}
        return Lagrangian(weights, thetas, multipliers if self.has_multipliers else None, self.mu)

    @override
    def __call__(self) -> Tensor:
        device = next(iter(self.hooks.values())).theta.device
        return self.lagrangian().in_shards().penalty().to(device)

"""L-C in the user's own loop: its loss is the penalty, its epochs are the L steps."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.config import LCConfig
from nncfx.controllers import (
    Builder,
    CompressionLoss,
    Controller,
    SparsityStatistics,
    register_algorithm,
    sparsity_scheduler,
    sparsity_statistics,
)
from nncfx.controllers.base.weights import WEIGHT_FUNCTIONS, aliases, raw_parameters
from nncfx.errors import CompressionError
from nncfx.lc.lagrangian import Lagrangian, Penalized, is_penalized, next_mu
from nncfx.lc.projection import project
from nncfx.network import NNCFNetwork, unwrap
from nncfx.schemes import Scheme
from nncfx.schemes.from_config import schemes_from
from nncfx.tracing import Insertion, Priority, WeightSite

__all__ = ["CompressedWeight", "LCBuilder", "LCController", "PenaltyLoss"]

ALGORITHM = LCConfig.algorithm


@final
class CompressedWeight(nn.Module):
    """Gives the weight itself in training mode, and its compressed value in evaluation mode.

    Attributes:
        theta: The compressed value, in the weight's dtype.
        multiplier: The Lagrange multiplier; stays zero under the quadratic penalty.
    """

    theta: Tensor
    multiplier: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("theta", weight.clone())
        self.register_buffer("multiplier", torch.zeros_like(weight))

    @override
    def forward(self, weight: Tensor) -> Tensor:
        return weight if self.training else self.theta


@final
class PenaltyLoss(CompressionLoss):
    """`mu/2 |w - theta|^2 - lambda . (w - theta)` over the constrained weights that are drawn.

    Attributes:
        model: The wrapped model.
        hooks: The compressed weights by parameter.
        mu: The penalty parameter; 0 before the first compression.
        has_multipliers: Whether lambda takes part.
        penalize: Which of the parameters are drawn.
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
        """Return the Lagrangian over the present tensors, which `.to()` may have exchanged."""
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
        return self.lagrangian().penalty().to(device)


@final
class LCController(Controller):
    """Compresses between epochs, and draws the weights to the compressed ones in between.

    Train on in training mode with `loss()` added. In evaluation mode the model computes with the
    compressed weights of the last compression; `compress()` does one now, before validation.

    Attributes:
        config: The algorithm's config.
        scheme: What compresses.
        hooks: The compressed weights by parameter.
    """

    needs_loss: ClassVar[bool] = True

    def __init__(
        self,
        model: nn.Module,
        config: LCConfig,
        scheme: Scheme,
        hooks: Mapping[str, CompressedWeight],
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.scheme = scheme
        self.hooks = dict(hooks)
        params = config.params
        self._penalty = PenaltyLoss(
            model, hooks, has_multipliers=params.multipliers, penalize=params.penalize
        )
        self.compression_loss = self._penalty
        self.level = 0.0
        self.scheduler = sparsity_scheduler(self, config.params, reached=self._reached)

    @property
    def mu(self) -> float:
        """The penalty parameter of the present L step; 0 before the first."""
        return self._penalty.mu

    def distance(self) -> float:
        """Return the Euclidean distance of the weights from their compressed values."""
        return self._penalty.lagrangian().distance()

    @torch.no_grad()
    def compress(self) -> None:
        """Compress the present weights, for evaluation; the Lagrangian does not move.

        Raises:
            CompressionError: the scheme cannot compress the model.
        """
        self._take(self._projected(self._plain(), self.level))

    @override
    def _before_strip(self) -> None:
        self.compress()

    @override
    def statistics(self) -> SparsityStatistics:
        weights = raw_parameters(self.model)
        gone = {
            # zeros that the weight has by itself are not of compression's making
            name: int(((one.theta == 0) & (weights[name] != 0)).sum())
            for name, one in self.hooks.items()
        }
        return sparsity_statistics(self.model, gone, self.level)

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"mu": self.mu}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict({key: one for key, one in state.items() if key != "mu"})
        self._penalty.mu = float(state.get("mu", 0.0))

    @override
    @torch.no_grad()
    def _apply(self, level: float) -> None:
        self._take(self._projected(self._plain(), level))

    @override
    def _epoch_begun(self, epoch: int) -> None:
        params = self.config.params
        if epoch < params.sparsity_freeze_epoch and epoch % params.epochs_per_step == 0:
            self._compression_step()

    @torch.no_grad()
    def _compression_step(self) -> None:
        """Do the C step: compress `w - lambda / mu`, move lambda, and raise mu."""
        lagrangian = self._penalty.lagrangian()
        shifted = self._plain()
        lagrangian.shift(shifted)
        projected = self._projected(shifted, self.level)
        self._take(projected)
        lagrangian.update(projected)
        params = self.config.params
        self._penalty.mu = next_mu(
            self.mu, initial=params.mu_init, multiplier=params.mu_multiplier, cap=params.mu_cap
        )

    def _plain(self) -> nn.Module:
        assert isinstance(self.model, NNCFNetwork)  # noqa: S101 (a controller handles one)
        return unwrap(copy.deepcopy(self.model))

    def _projected(self, plain: nn.Module, level: float) -> dict[str, Tensor]:
        projection = project(plain, self.scheme, level)
        return {name: one.detach() for name, one in raw_parameters(projection.model).items()}

    def _take(self, values: Mapping[str, Tensor]) -> None:
        for name, hook in self.hooks.items():
            hook.theta.copy_(values[name])

    def _reached(self) -> float:
        return self.statistics().level


@final
@register_algorithm(LCConfig)
class LCBuilder(Builder[LCConfig]):
    """Plans a compressed weight at every parameter that the schemes constrain."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        names = aliases(model)
        parameters = raw_parameters(model)
        constrained = sorted(self._scheme(model).parameters(unwrap(copy.deepcopy(model))))
        if not constrained:
            raise CompressionError(
                "lc finds no weight to work on: its schemes constrain none within the scopes. "
                "Widen 'target_scopes', choose another scheme, or take the item out.",
            )
        insertions = []
        for name in constrained:
            hook = CompressedWeight(parameters[name].detach())
            insertions += [
                # masks of other algorithms see what this one leaves
                Insertion(WeightSite.of(alias), hook, Priority.DEFAULT, ALGORITHM)
                for alias in names[name]
            ]
        return insertions

    @override
    def controller(self, model: NNCFNetwork, insertions: Sequence[Insertion]) -> LCController:
        names = aliases(model)
        hooks = {
            names[str(one.site)][0]: one.hook
            for one in insertions
            if isinstance(one.hook, CompressedWeight)
        }
        return LCController(model, self.config, self._scheme(model), hooks)

    def _scheme(self, model: NNCFNetwork) -> Scheme:
        scheme = schemes_from(self.config.schemes, ignored=sorted(self._left_alone(model)))
        return scheme.bind(model.nncf.channels) if scheme.is_structured else scheme

    def _left_alone(self, model: NNCFNetwork) -> Iterable[str]:
        """Return the modules whose weights an operation outside the scopes reads."""
        considered = {one.address for one in self.considered(model)}
        return {
            WeightSite.of(name).module
            for one in model.nncf.graph.operations
            if one.function in WEIGHT_FUNCTIONS and one.address not in considered
            for name in one.parameters.values()
        }

"""L-C in the user's own training loop: its loss is the penalty, its epochs are the L steps."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.controllers import (
    Controller,
    SparsityStatistics,
    sparsity_scheduler,
    sparsity_statistics,
)
from nncfx.controllers.base.states import CONTROLLER, check_keys, check_kinds
from nncfx.controllers.base.weights import raw_parameters
from nncfx.lc.config import LCConfig
from nncfx.lc.lagrangian import next_mu
from nncfx.lc.penalty import CompressedWeight, PenaltyLoss
from nncfx.lc.projection import project
from nncfx.network import NNCFNetwork, unwrap
from nncfx.schemes import Scheme
from nncfx.storage.models.sharded_models import gathered, whole
from nncfx.tracing.calls.model_copy import copy_of

ALGORITHM = LCConfig.algorithm


@final
class LCController(Controller):
    """Compresses between epochs, and pulls weights towards the compressed ones in between.

    Train in training mode with `loss()` added. In evaluation mode the model uses the weights of
    the last compression; call `compress()` before validation to compress the current weights.

    Attributes:
        config: The algorithm's config.
        scheme: The scheme that compresses.
        hooks: The compressed weights by parameter.
    """

    needs_loss: bool = True

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
        """The penalty parameter of the current L step; 0 before the first."""
        return self._penalty.mu

    def distance(self) -> float:
        """Return the Euclidean distance of the weights from their compressed values."""
        with gathered(self.model):
            return self._penalty.lagrangian().distance()

    @torch.no_grad()
    def compress(self) -> None:
        """Compress the current weights for evaluation; the Lagrangian does not change.

        Raises:
            CompressionError: the scheme cannot compress the model.
        """
        with gathered(self.model):
            self._take(self._projected(self._plain(), self.level))

    @override
    def _before_strip(self) -> None:
        self.compress()

    @override
    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        kept = {name: hook.theta.clone() for name, hook in self.hooks.items()}
        self.compress()
        try:
            yield
        finally:
            # within an L step the weights are pulled to the result of its C step
            with torch.no_grad():
                self._take(kept)

    @override
    def statistics(self) -> SparsityStatistics:
        weights = raw_parameters(self.model)
        gone = {
            # do not count zeros that the weight already has
            name: int(((one.theta == 0) & (whole(weights[name]) != 0)).sum())
            for name, one in self.hooks.items()
        }
        return sparsity_statistics(self.model, gone, self.level)

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"mu": self.mu}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_keys(state, CONTROLLER, f"The state of '{self.algorithm}'", optional=("mu",))
        super().load_state_dict({key: state[key] for key in CONTROLLER})
        check_kinds({"mu": 0.0, **state}, {"mu": (int, float)})
        self._penalty.mu = float(state.get("mu", 0.0))

    @override
    @torch.no_grad()
    def _apply(self, level: float) -> None:
        self._take(self._projected(self._plain(), level))

    @override
    def _epoch_begun(self, epoch: int) -> None:
        params = self.config.params
        if epoch < params.freeze_epoch and epoch % params.epochs_per_step == 0:
            self._compression_step()

    @torch.no_grad()
    def _compression_step(self) -> None:
        """Do the C step: compress `w - lambda / mu`, update lambda, and raise mu."""
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
        assert isinstance(self.model, NNCFNetwork)  # noqa: S101 (a controller has a wrapped model)
        return unwrap(copy_of(self.model))

    def _projected(self, plain: nn.Module, level: float) -> dict[str, Tensor]:
        projection = project(plain, self.scheme, level)
        return {name: one.detach() for name, one in raw_parameters(projection.model).items()}

    def _take(self, values: Mapping[str, Tensor]) -> None:
        for name, hook in self.hooks.items():
            hook.theta.copy_(values[name])

    def _reached(self) -> float:
        return self.statistics().level

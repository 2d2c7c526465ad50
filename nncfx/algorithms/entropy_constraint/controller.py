"""The controller of the entropy constraint, which limits the bits that weights take in a file.

The forward reads each weight rounded to the grid on which all weights together take the requested
bits; gradients reach the weights below. The code length is added to the loss, which moves weights
to cheaper values, so the same bits allow a finer grid.

Source: Choi, El-Khamy and Lee 2017, Towards the limit of network quantization; Wiedemann et al.
2019, Entropy-constrained training of deep neural networks.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor
from typing_extensions import override

from nncfx.algorithms.entropy_constraint.config import EntropyConstraintConfig
from nncfx.algorithms.entropy_constraint.hook import GridHook
from nncfx.controllers import (
    CompressionLoss,
    Controller,
    EpochScheduler,
    PolynomialSchedule,
    Statistics,
)
from nncfx.controllers.base.statistics import table
from nncfx.controllers.base.weights import raw_parameters
from nncfx.network import NNCFNetwork
from nncfx.schemes.rate_distortion.entropy_grid import DENSE_BITS, bits_of_level, entropy_grids
from nncfx.storage.models.sharded_models import whole

ALGORITHM = EntropyConstraintConfig.algorithm
_CUBIC = 3.0


@final
class CodeLengthLoss(CompressionLoss):
    """The bits of all weights, per weight, times a rate; differentiable.

    Attributes:
        model: The model whose raw parameters are priced.
        hooks: The hooks by parameter; each prices its weight on its own grid.
        rate: Factor of the bits per weight in the loss.
    """

    def __init__(self, model: NNCFNetwork, hooks: Mapping[str, GridHook], rate: float) -> None:
        self.model = model
        self.hooks = dict(hooks)
        self.rate = rate

    @override
    def __call__(self) -> Tensor:
        """Return `rate * bits / weights`; 0 while there are no grids."""
        parameters = raw_parameters(self.model)
        weights = {name: parameters[name] for name in self.hooks}
        total = whole(next(iter(weights.values())).new_zeros(()))
        if not self.rate:
            return total
        for name, hook in self.hooks.items():
            if hook.is_active:
                total = total + hook.grid.code_length(whole(weights[name]))
        return self.rate * total / sum(one.numel() for one in weights.values())


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerEntropy:
    """Statistics of the integers of one weight.

    Attributes:
        name: Dotted name of the parameter.
        shape: Its shape.
        bits: Mean bits per entry with an order-0 entropy coder.
        nonzero: Number of non-zero entries.
        step: Distance of neighbours on its grid; 0 before a grid is set.
    """

    name: str
    shape: tuple[int, ...]
    bits: float
    nonzero: int
    step: float


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class EntropyStatistics(Statistics):
    """Statistics of the constraint.

    Attributes:
        target_level: The level that was set.
        level: Fraction of the weights' float32 bits that their integers save.
        bits: Mean bits per weight with an order-0 entropy coder.
        layers: One entry per weight, in order of execution.
    """

    target_level: float
    level: float
    bits: float
    layers: tuple[LayerEntropy, ...]

    @override
    def to_str(self) -> str:
        rows: list[list[object]] = [
            [one.name, " x ".join(map(str, one.shape)), f"{one.bits:.3f}", one.nonzero]
            for one in self.layers
        ]
        rows.append(["all", "", f"{self.bits:.3f}", sum(one.nonzero for one in self.layers)])
        return table(["weight", "shape", "bits", "not zero"], rows)


@final
class EntropyConstraintController(Controller):
    """Recomputes the grids at every epoch; a level is the fraction of float32's bits saved.

    The level of `b` bits is 1 - b / 32. Grids are computed from the stored weights, so weights
    that a sparsity algorithm also masks cost less than requested.

    Attributes:
        config: The algorithm's config.
        hooks: The hooks by parameter.
    """

    def __init__(
        self, model: NNCFNetwork, config: EntropyConstraintConfig, hooks: Mapping[str, GridHook]
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.hooks = dict(hooks)
        self.compression_loss = CodeLengthLoss(model, self.hooks, config.rate)
        params = config.params
        schedule = PolynomialSchedule(
            initial=1 - params.bits_init / DENSE_BITS,
            target=1 - config.bits / DENSE_BITS,
            epochs=params.target_epoch,
            power=_CUBIC,
        )
        self.scheduler = EpochScheduler(self, schedule, params.freeze_epoch)

    @override
    def _apply(self, level: float) -> None:
        grids = entropy_grids(self._weights(), bits_of_level(level)) if level else {}
        for name, hook in self.hooks.items():
            hook.take(grids.get(name))

    def _weights(self) -> dict[str, Tensor]:
        parameters = raw_parameters(self.model)
        return {name: whole(parameters[name].detach()) for name in self.hooks}

    @override
    @torch.no_grad()
    def statistics(self) -> EntropyStatistics:
        layers = tuple(
            _layer(name, weight, self.hooks[name]) for name, weight in self._weights().items()
        )
        sizes = [math.prod(one.shape) for one in layers]
        total = sum(one.bits * size for one, size in zip(layers, sizes, strict=True))
        bits = total / max(1, sum(sizes))
        return EntropyStatistics(
            target_level=self.level,
            level=max(0.0, 1 - bits / DENSE_BITS),
            bits=bits,
            layers=layers,
            unread=self.unread,
        )


def _layer(name: str, weight: Tensor, hook: GridHook) -> LayerEntropy:
    if not hook.is_active:
        nonzero, bits, step = int(weight.count_nonzero()), float(DENSE_BITS), 0.0
    else:
        on_grid = hook.grid.rounded(weight)
        nonzero, step = int(on_grid.count_nonzero()), float(hook.step)
        bits = float(hook.grid.code_length(on_grid)) / max(1, weight.numel())
    shape = tuple(weight.shape)
    return LayerEntropy(name=name, shape=shape, bits=bits, nonzero=nonzero, step=step)

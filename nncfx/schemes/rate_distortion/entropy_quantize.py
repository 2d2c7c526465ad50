"""EntropyQuantize: weights on grids on which they take a given number of bits of a file."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.schemes.layers import CONDENSA_LAYERS, kinds_of, layer_parameters
from nncfx.schemes.masks.exact_masks import check_level
from nncfx.schemes.rate_distortion.code_lengths import estimated_bits
from nncfx.schemes.rate_distortion.entropy_grid import bits_of_level, entropy_grids, grid_step
from nncfx.schemes.weight_scheme import WeightScheme

_SLACK: Final = 1.001


@dataclass(frozen=True)
class EntropyQuantize(WeightScheme):
    """Rounds all weights to integers times a step per tensor that take `bits` bits on average.

    The error of a tensor is relative to its squares, and each weight is rounded to the integer of
    least error plus code length (`entropy_grids`): the projection of L-C onto the models of a
    size. Weights that already lie on grids within the bits are unchanged. Biases, zeros and the
    dtype do not change.

    Attributes:
        bits: Bits per weight, above 0. `None`: 32 * (1 - level), and level 0 changes nothing;
            otherwise the scheme does not depend on the level.
        ignored: Dotted names of modules to leave alone, or `{re}` patterns.
        layers: Kinds of layers, by their names in `LAYER_KINDS`.

    Raises:
        ArgumentError: `bits` is out of range, or a kind of layer is unknown.
    """

    bits: float | None = None
    ignored: tuple[str, ...] = ()
    layers: tuple[str, ...] = CONDENSA_LAYERS

    def __post_init__(self) -> None:
        kinds_of(self.layers)
        if self.bits is not None and not self.bits > 0:
            raise ArgumentError(
                f"bits is {self.bits!r}; integers take more than 0 bits each. Write 2.0, or leave "
                "it out and let the level say."
            )

    @override
    @torch.no_grad()
    def compress(self, model: nn.Module, level: float) -> None:
        check_level(level)
        if self.bits is None and not level:
            return
        bits = bits_of_level(level) if self.bits is None else self.bits
        weights = self._weights(model)
        if not weights or _is_within(weights, bits):
            return
        for name, grid in entropy_grids(weights, bits).items():
            weights[name].copy_(grid.rounded(weights[name].detach().float()))

    def _weights(self, model: nn.Module) -> dict[str, Tensor]:
        weights = layer_parameters(self._layers(model), biases=False)
        unique = {id(one): one for one in weights}
        return {str(number): one for number, one in enumerate(unique.values())}


def _is_within(weights: dict[str, Tensor], bits: float) -> bool:
    """Return whether all weights are on grids and take at most `bits` bits each."""
    total = 0.0
    for weight in weights.values():
        step = grid_step(weight.detach().float())
        if step is None:
            return False
        # contexts make the estimate no larger than that of order 0, which determines the grids
        total += estimated_bits((weight.detach().float() / step).round())
    return total <= _SLACK * bits * sum(one.numel() for one in weights.values())

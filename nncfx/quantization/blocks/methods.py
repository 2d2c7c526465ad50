"""How the weight of one layer is compressed: small functions in one table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from nncfx.quantization.blocks.weight_formats import fitted_grid
from nncfx.quantization.grid.fake_quantize import fake_quantize
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.grid.stored_weights import on_grid
from nncfx.quantization.rounding.curvature import Curvature
from nncfx.quantization.rounding.gptq import round_matrix
from nncfx.storage.models.integer_tensor import IntegerTensor

__all__ = ["ROUNDINGS", "Rounded", "Rounding"]


@dataclass(frozen=True)
class Rounded:
    """A weight on a grid.

    Attributes:
        stored: Its codes, o x i.
        error: The mean squared change of the outputs, summed over them.
    """

    stored: IntegerTensor
    error: float


Rounding = Callable[[Tensor, Curvature, QuantizerSpec], Rounded]
"""Takes a weight, o x i, what is known of its inputs, and a grid by rows or groups."""


def _energies(known: Curvature) -> Tensor:
    return known.moments.diagonal()


def _stored(
    values: Tensor, weight: Tensor, grid: tuple[Tensor, Tensor], spec: QuantizerSpec
) -> IntegerTensor:
    # rounded values are on the grid already, whatever the precision of the weight
    return on_grid(values.to(weight.dtype), *grid, spec)


@torch.no_grad()
def rounded_to_nearest(weight: Tensor, known: Curvature, spec: QuantizerSpec) -> Rounded:
    """Round to nearest on the grid that clips best for these inputs."""
    grid = fitted_grid(weight, spec, _energies(known))
    values = fake_quantize(weight.float(), *grid, spec)
    change = values - weight.float()
    error = float(((change @ known.moments) * change).sum())
    return Rounded(_stored(values, weight, grid, spec), error)


@torch.no_grad()
def rounded_by_gptq(weight: Tensor, known: Curvature, spec: QuantizerSpec) -> Rounded:
    """Round column by column, later columns making up for the errors."""
    grid = fitted_grid(weight, spec, _energies(known))
    found = round_matrix(weight.float(), known, *grid, spec)
    return Rounded(_stored(found.values, weight, grid, spec), float(found.errors.sum()))


ROUNDINGS: Final[dict[str, Rounding]] = {
    "round": rounded_to_nearest,
    "gptq": rounded_by_gptq,
}

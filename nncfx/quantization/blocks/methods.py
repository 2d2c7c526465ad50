"""How the weight of one layer is compressed: small functions in one table."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

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


Rounding = Callable[[Tensor, Curvature, QuantizerSpec, tuple[Tensor, Tensor]], Rounded]
"""Takes a weight, o x i, what is known of its inputs, and a grid by rows or groups: its form, and
scale and zero point as fitted."""


def _stored(
    values: Tensor, weight: Tensor, grid: tuple[Tensor, Tensor], spec: QuantizerSpec
) -> IntegerTensor:
    # rounded in float32, they are on the grid; in the weight's own precision they might not be
    codes = on_grid(values, *grid, spec)
    return dataclasses.replace(codes, dtype=weight.dtype)


@torch.no_grad()
def rounded_to_nearest(
    weight: Tensor, known: Curvature, spec: QuantizerSpec, grid: tuple[Tensor, Tensor]
) -> Rounded:
    """Round to nearest."""
    values = fake_quantize(weight.float(), *grid, spec)
    change = values - weight.float()
    error = float(((change @ known.moments) * change).sum())
    return Rounded(_stored(values, weight, grid, spec), error)


@torch.no_grad()
def rounded_by_gptq(
    weight: Tensor, known: Curvature, spec: QuantizerSpec, grid: tuple[Tensor, Tensor]
) -> Rounded:
    """Round column by column, later columns making up for the errors."""
    found = round_matrix(weight.float(), known, *grid, spec)
    return Rounded(_stored(found.values, weight, grid, spec), float(found.errors.sum()))


ROUNDINGS: Final[dict[str, Rounding]] = {
    "round": rounded_to_nearest,
    "gptq": rounded_by_gptq,
}

"""GPTQ: round a weight column by column; later columns compensate the errors so far."""

from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from torch import Tensor

from nncfx.quantization.grid.fake_quantize import fake_quantize
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.rounding.curvature import (
    Choice,
    Columns,
    Curvature,
    reconstruction_errors,
    replace_columns,
)
from nncfx.storage.compiled import IS_COMPILED

_WORTH_COMPILING: Final = 1 << 16
"""Smallest number of weights to compile for; compiling takes two seconds per installation."""


class RoundedMatrix(NamedTuple):
    """A weight on its grid.

    Attributes:
        values: o x i.
        errors: Mean squared change of each output, o.
        nearest_errors: The same for rounding to nearest, o.
    """

    values: Tensor
    errors: Tensor
    nearest_errors: Tensor


@torch.no_grad()
def round_matrix(
    weight: Tensor, known: Curvature, scale: Tensor, zero_point: Tensor, spec: QuantizerSpec
) -> RoundedMatrix:
    """Return `weight` rounded to its grid with a small change of the layer's output.

    Columns are rounded in descending order of their inputs' energy, and the rounding error of each
    column is spread over the remaining columns. Each row is rounded to nearest instead if that is
    better. Zeros stay zero, so pruned weights stay pruned.

    Args:
        weight: o x i, float.
        known: Curvature of the layer's inputs. The column of an input that is always zero is free.
        scale: As in `fake_quantize` for `spec` and `weight`.
        zero_point: Shaped as `scale`.
        spec: The grid, per row (axis 0), per tensor, or by groups along the rows.

    Source: Frantar et al. 2023, GPTQ, section 3 and algorithm 1; the order of columns is the
    "act-order" of the authors' code.
    """
    place = weight.device
    # compute on a device that supports float64
    weight, scale, zero_point = (
        one.to(known.factor.device) for one in (weight, scale, zero_point)
    )
    nearest = fake_quantize(weight, scale, zero_point, spec)
    gone = (weight == 0).T.contiguous().index_select(0, known.order)
    choice = _rounding(weight, known, (scale, zero_point, spec))
    run = _compiled_rounding(weight, known, (scale, zero_point, spec), gone)

    def pruned(column: int, values: Tensor) -> Tensor:
        return choice(column, values).masked_fill_(gone[column], 0.0)

    compensated, errors = replace_columns(weight, known, lambda _, __: pruned, run)
    # equals the rounding of the hook bitwise
    back = fake_quantize(compensated.to(weight.dtype).contiguous(), scale, zero_point, spec)
    nearest_errors = reconstruction_errors(weight, nearest, known.moments)
    is_better = errors < nearest_errors
    return RoundedMatrix(
        torch.where(is_better.unsqueeze(1), back, nearest).to(place),
        torch.where(is_better, errors, nearest_errors),
        nearest_errors,
    )


def _rounding(
    weight: Tensor, known: Curvature, grid: tuple[Tensor, Tensor, QuantizerSpec]
) -> Choice:
    """Return a function that rounds a column to the grids of its groups."""
    scale, zero_point, spec = grid
    steps, zeros = (_by_group(one, weight) for one in (scale, zero_point))
    width = weight.shape[1] if spec.group is None else spec.group
    groups = (known.order // width).tolist()
    by_row = spec.replace(group=None, columns=False, axis=0)
    low, high = float(spec.quant_min), float(spec.quant_max)

    def to_integers(column: int, values: Tensor) -> Tensor:
        step, zero = steps[groups[column]], zeros[groups[column]]
        whole = (values / step).round_().add_(zero)
        return whole.clamp_(low, high).sub_(zero).mul_(step)

    def to_floats(column: int, values: Tensor) -> Tensor:
        step, zero = steps[groups[column]], zeros[groups[column]]
        return fake_quantize(values, step, zero, by_row)

    return to_integers if spec.is_integer else to_floats


def _compiled_rounding(
    weight: Tensor, known: Curvature, grid: tuple[Tensor, Tensor, QuantizerSpec], gone: Tensor
) -> Callable[[Columns], None] | None:
    """Return a function that rounds columns by a compiled loop, or None if that is slower."""
    scale, zero_point, spec = grid
    is_worth_it = IS_COMPILED and weight.numel() >= _WORTH_COMPILING
    if not (is_worth_it and spec.is_integer and weight.device.type == "cpu"):
        return None
    # importing numba takes half a second
    from nncfx.quantization.rounding.column_kernel import round_columns

    steps, zeros = (_by_group(one, weight) for one in (scale, zero_point))
    shape = (len(steps), len(weight))
    tables = (steps.expand(shape).contiguous().numpy(), zeros.expand(shape).contiguous().numpy())
    groups = (known.order // (weight.shape[1] // len(steps))).numpy()
    ends = (float(spec.quant_min), float(spec.quant_max))

    def run(columns: Columns) -> None:
        part = slice(columns.first, columns.first + len(columns.rest))
        round_columns(
            columns.rest.numpy(),
            columns.new.numpy(),
            columns.errors.numpy(),
            columns.factor.contiguous().numpy(),
            *tables,
            groups[part],
            gone[part].numpy(),
            *ends,
        )

    return run


def _by_group(value: Tensor, weight: Tensor) -> Tensor:
    """Return scales or zero points by group and row, groups x o, in float64."""
    value = value.to(weight.device).double()
    if not value.ndim:
        return value.expand(1, len(weight))
    return value.view(len(weight), -1).T.contiguous()

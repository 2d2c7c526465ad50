"""HQQ: grids whose errors are sparse, found without data by half-quadratic splitting."""

from typing import Final

import torch
from torch import Tensor

from nncfx.quantization.grid.fake_quantize import fake_quantize
from nncfx.quantization.grid.spec import QuantizerSpec

_POWER: Final = 0.7
"""p of the norm; below 1 a few large errors cost less than many small ones."""

_STEPS: Final = 20
_BETA: Final = 10.0
"""How near the sparse errors are to the real ones at first: of errors in steps of the grid."""

_KAPPA: Final = 1.01
_SHIFTS: Final = (-1, 0, 1)
"""Of the zero point, which is a whole number."""

_LEAST_SHARE: Final = 0.25
"""Of the scale that the search begins with."""

_ROWS: Final = 2**18
"""Weights that are worked on at once, so that they stay in the cache."""


@torch.no_grad()
def half_quadratic_grid(
    rows: Tensor, start: tuple[Tensor, Tensor], spec: QuantizerSpec
) -> tuple[Tensor, Tensor]:
    """Return scale and zero point of each row, r each: their errors' l_0.7 norm is small.

    It is never larger than with the scales and zero points of `start`. HQQ moves zero points that
    are floats; formats of 4 bits hold whole ones, and rounding HQQ's loses what it gained. So the
    zero points are tried from one below to one above, and it is the scale that each step fits to
    what is left of the weights without their sparse errors.

    Args:
        rows: r x m, float32 or float64.
        start: Scale and zero point of each row, r each.
        spec: A grid with axis 0; its scales may be any positive number.

    Source: Badri and Shaji 2023, Half-Quadratic Quantization of Large Machine Learning Models,
    with p, beta and kappa of the authors' code; errors are counted in steps of the grid, so that
    beta means the same for all weights.
    """
    step = max(_ROWS // max(rows.shape[1], 1), 1)
    parts = [
        _searched(rows[at : at + step], start[0][at : at + step], start[1][at : at + step], spec)
        for at in range(0, len(rows), step)
    ]
    if not parts:
        return start
    return torch.cat([one for one, _ in parts]), torch.cat([one for _, one in parts])


def sparse_errors(rows: Tensor, rounded: Tensor) -> Tensor:
    """Return the sum of |error|^0.7 of each row, r.

    >>> sparse_errors(torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 2.0]]))
    tensor([1.])
    """
    return _power((rounded - rows).abs_(), _POWER).sum(1)


def shrunk(errors: Tensor, beta: float) -> Tensor:
    """Return the sparse errors: each made smaller by `|e|^(p - 1) / beta`, or zero.

    Source: the generalized soft-thresholding of Badri and Shaji 2023, with p of 0.7.

    >>> shrunk(torch.tensor([1.0, -1.0, 0.01]), 10.0)
    tensor([ 0.9000, -0.9000,  0.0000])
    """
    sizes = errors.abs()
    return sizes.sub_(_power(sizes, _POWER - 1).div_(beta)).clamp_(min=0).copysign_(errors)


def _power(sizes: Tensor, power: float) -> Tensor:
    """Return `sizes` to a `power` that is no whole number, four times as fast as torch's `pow`.

    Zeros, whose logarithm takes a slow path, count as 1e-20.
    """
    return sizes.clamp(min=1e-20).log_().mul_(power).exp_()


def _searched(
    rows: Tensor, scale: Tensor, zero: Tensor, spec: QuantizerSpec
) -> tuple[Tensor, Tensor]:
    best_scale, best_zero = scale.clone(), zero.clone()
    least = sparse_errors(rows, fake_quantize(rows, scale, zero, spec))
    for shift in _SHIFTS if spec.mode == "asymmetric" else (0,):
        own_zero = (zero + shift).clamp(spec.quant_min, spec.quant_max)
        own, beta = scale, _BETA
        for _ in range(_STEPS):
            rounded = fake_quantize(rows, own, own_zero, spec)
            found = sparse_errors(rows, rounded)
            is_better = found < least
            least = torch.where(is_better, found, least)
            best_scale = torch.where(is_better, own, best_scale)
            best_zero = torch.where(is_better, own_zero, best_zero)
            own = _fitted(rows, rounded, own, beta).clamp_(min=_LEAST_SHARE * scale)
            beta *= _KAPPA
    return best_scale, best_zero


def _fitted(rows: Tensor, rounded: Tensor, scale: Tensor, beta: float) -> Tensor:
    """Return the scales at which the codes of `rounded` are nearest to rows without errors."""
    unit = scale.unsqueeze(1)
    codes, wanted = rounded / unit, rows / unit
    wanted -= shrunk(wanted - codes, beta)
    energy = torch.linalg.vecdot(codes, codes)
    share = torch.linalg.vecdot(wanted, codes) / energy.clamp(min=1e-30)
    return torch.where(energy > 0, share * scale, scale)

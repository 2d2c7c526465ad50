"""HQQ: find grids with sparse errors by half-quadratic splitting, without data."""

from typing import Final

import torch
from torch import Tensor

from nncfx.quantization.grid.fake_quantize import fake_quantize
from nncfx.quantization.grid.spec import QuantizerSpec

_POWER: Final = 0.7
"""p of the norm; below 1, a few large errors cost less than many small ones."""

_STEPS: Final = 20
_BETA: Final = 10.0
"""Initial penalty on the distance between sparse and real errors, in steps of the grid."""

_KAPPA: Final = 1.01
_SHIFTS: Final = (-1, 0, 1)
"""Shifts of the zero point, a whole number, that are tried."""

_LEAST_SHARE: Final = 0.25
"""Smallest scale, as a share of the initial scale."""

_ROWS: Final = 2**18
"""Weights that are processed at once, so that they fit into the cache."""


@torch.no_grad()
def half_quadratic_grid(
    rows: Tensor, start: tuple[Tensor, Tensor], spec: QuantizerSpec
) -> tuple[Tensor, Tensor]:
    """Return scales and zero points, r each, that make the l_0.7 norm of each row's error small.

    The norm is never larger than with `start`. HQQ moves zero points that are floats, but formats
    of 4 bits hold whole zero points, and rounding loses the gain. So zero points from one below
    to one above are tried, and each step fits the scale to the weights minus their sparse errors.

    Args:
        rows: r x m, float32 or float64.
        start: Scale and zero point of each row, r each.
        spec: A grid with axis 0 and arbitrary positive scales.

    Source: Badri and Shaji 2023, Half-Quadratic Quantization of Large Machine Learning Models,
    with p, beta and kappa of the authors' code; errors are measured in steps of the grid, so that
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
    """Return the sparse errors: each error shrunk towards zero by `|e|^(p - 1) / beta`.

    Source: the generalized soft-thresholding of Badri and Shaji 2023, with p of 0.7.

    >>> shrunk(torch.tensor([1.0, -1.0, 0.01]), 10.0)
    tensor([ 0.9000, -0.9000,  0.0000])
    """
    sizes = errors.abs()
    return sizes.sub_(_power(sizes, _POWER - 1).div_(beta)).clamp_(min=0).copysign_(errors)


def _power(sizes: Tensor, power: float) -> Tensor:
    """Return `sizes` to a fractional `power`, four times as fast as torch's `pow`.

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
    """Return the scales at which the codes of `rounded` best fit rows minus sparse errors."""
    unit = scale.unsqueeze(1)
    codes, wanted = rounded / unit, rows / unit
    wanted -= shrunk(wanted - codes, beta)
    energy = torch.linalg.vecdot(codes, codes)
    share = torch.linalg.vecdot(wanted, codes) / energy.clamp(min=1e-30)
    return torch.where(energy > 0, share * scale, scale)

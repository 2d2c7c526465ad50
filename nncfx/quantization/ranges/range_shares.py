"""Find how much of each row's range a grid should cover; the outermost weights are clipped."""

from typing import Final

import torch
from torch import Tensor

from nncfx.quantization.grid.fake_quantize import fake_quantize, qparams_from_range
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.schemes.wide_floats import wide

_SHARES: Final = tuple(torch.linspace(1, 0.5, 11, dtype=torch.float32, device="cpu").tolist())
_ROWS: Final = 2**18
"""Weights that are processed at once, so that they fit into the cache."""


@torch.no_grad()
def best_shares(rows: Tensor, spec: QuantizerSpec, counts: Tensor | None = None) -> Tensor:
    """Return the share of each row's range to quantize for the least squared error.

    Clipping the outermost weights of a row gives the others a finer grid. The shares 1, 0.95,
    ..., 0.5 are tried; the largest wins a tie.

    Args:
        rows: r x m.
        spec: A grid with axis 0.
        counts: Weights of the squared errors, r x m; all equal by default.

    Returns:
        r shares, in [0.5, 1].
    """
    step = max(_ROWS // max(rows.shape[1], 1), 1)
    parts = [
        _shares(
            wide(rows[start : start + step]),
            spec,
            None if counts is None else counts[start : start + step],
        )
        for start in range(0, len(rows), step)
    ]
    return torch.cat(parts) if parts else wide(rows).new_ones(0)


def _shares(rows: Tensor, spec: QuantizerSpec, counts: Tensor | None) -> Tensor:
    best = torch.ones_like(rows[:, 0])
    least = torch.full_like(best, torch.inf)
    low, high = rows.amin(1), rows.amax(1)
    for share in _SHARES:
        error = squared_errors(rows, (low * share, high * share), spec, counts)
        best = torch.where(error < least, share, best)
        least = torch.minimum(error, least)
    return best


def squared_errors(
    rows: Tensor, ends: tuple[Tensor, Tensor], spec: QuantizerSpec, counts: Tensor | None = None
) -> Tensor:
    """Return the sum of squared errors of each row, r, on the grid of its range.

    `ends` are the lower and upper ends of the ranges, r each; the rest is as in `best_shares`.
    """
    scale, zero_point = qparams_from_range(*ends, spec)
    errors = (fake_quantize(rows, scale, zero_point, spec) - rows).square_()
    return (errors if counts is None else errors.mul_(counts)).sum(1)

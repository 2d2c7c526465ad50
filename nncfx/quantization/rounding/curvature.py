"""Second moments of a layer's inputs, factored, and the column updates of GPTQ based on them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from nncfx.errors import CompressionError
from nncfx.float64 import float64_device

Choice = Callable[[int, Tensor], Tensor]
"""Takes the index of a column and its values, o; returns the new values."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Neighbouring columns to be replaced; each is stored as a row.

    Attributes:
        first: The index of the first column.
        rest: The columns, k x o; overwritten.
        new: Output: the new columns, k x o.
        errors: Output: the changes divided by the diagonal of `factor`, k x o.
        factor: Factor for these columns, k x k, upper triangular.
    """

    first: int
    rest: Tensor
    new: Tensor
    errors: Tensor
    factor: Tensor


_DAMPING: Final = 0.01
_ATTEMPTS: Final = 6
_BLOCK: Final = 128
_SOLVED: Final = 96
"""Largest size of a triangular matrix that is inverted by solving."""

_PART: Final = 16
"""Columns whose errors are spread one by one; beyond them by matrix products."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """The second moments of a layer's inputs, and the factor of their inverse.

    Attributes:
        moments: i x i, the mean of x x^T over the inputs.
        order: The order of the inputs, i; by default of descending energy.
        factor: U, i x i in this order, float64: upper triangular, where U^T U is the inverse of
            the damped moments.
        damping: The damping added to the diagonal, i, in this order.
    """

    moments: Tensor
    order: Tensor
    factor: Tensor
    damping: Tensor


def check_finite(moments: Tensor) -> None:
    """Check that moments are finite, either the full matrix or its diagonal.

    Raises:
        CompressionError: an entry is not finite.
    """
    if not moments.to(float64_device(moments)).sum(dtype=torch.float64).isfinite():
        raise CompressionError(
            "The second moments of a layer's inputs are not finite, so its weights cannot be "
            "rounded by them. Look for NaN or infinity in the calibration data."
        )


@torch.no_grad()
def curvature(moments: Tensor, *, by_energy: bool = True) -> Curvature:
    """Return `moments` with the factor of their damped inverse.

    Args:
        moments: i x i, the mean of x x^T. The column of an input that is always zero is free.
        by_energy: Sort the inputs by their energy; otherwise keep their order.

    Raises:
        CompressionError: an entry is not finite, or the damped moments have no inverse.

    Source: Frantar et al. 2023, GPTQ, section 3; the order is the "act-order" of their code.
    """
    check_finite(moments)
    moments = moments.to(float64_device(moments))
    energy = moments.diagonal().double()
    order = energy.argsort(descending=True, stable=True)
    if not by_energy:
        order = torch.arange(len(energy), device=energy.device)
    # U is the inverse of the upper factor R R^T; reversed rows and columns make R a lower factor
    turned = order.flip(0)
    damped = moments.index_select(0, turned).index_select(1, turned).double()
    dead = torch.where(energy[turned] > 0, 0.0, 1.0).double()
    damping = _DAMPING * float(energy.mean()) or 1.0
    for _ in range(_ATTEMPTS):
        added = dead + damping
        damped.diagonal().copy_(energy[turned] + added)
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            _invert(lower)
            return Curvature(moments, order, lower.flip((0, 1)), added.flip(0))
        damping *= 10
    raise CompressionError(
        "The second moments of a layer's inputs have no inverse even with damping. Calibrate "
        "with more, and more varied, data."
    )


def _invert(lower: Tensor) -> None:
    """Invert a lower triangular matrix in place, by halves; products are faster than solving."""
    size = len(lower)
    if size <= _SOLVED:
        unit = torch.eye(size, dtype=lower.dtype, device=lower.device)
        lower.copy_(torch.linalg.solve_triangular(lower, unit, upper=False))
        return
    half = size // 2
    first, second, below = lower[:half, :half], lower[half:, half:], lower[half:, :half]
    _invert(first)
    _invert(second)
    below.copy_((second @ below @ first).neg_())


def replace_columns(
    weight: Tensor,
    known: Curvature,
    begin: Callable[[int, Tensor], Choice],
    run: Callable[[Columns], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Replace the columns of a weight one after another; later columns compensate each error.

    Args:
        weight: o x i, float.
        known: Curvature of the inputs.
        begin: Called with the index of the first of each block of columns, in `known.order`, and
            their current values, up to 128 x o; returns the function that replaces each column.
        run: Processes several columns at once, instead of the functions returned by `begin`.

    Returns:
        The new weight, o x i float64, and the mean squared change of each output, o.

    Source: Frantar et al. 2023, GPTQ, algorithm 1.
    """
    # transposed, each column is contiguous, and blocks of errors update the rest by one product
    before = weight.T.contiguous().index_select(0, known.order).double()
    rest, new, factor = before.clone(), torch.empty_like(before), known.factor
    divisors, lost = factor.diagonal().tolist(), torch.zeros_like(rest[0])
    for start in range(0, len(rest), _BLOCK):
        stop = min(start + _BLOCK, len(rest))
        choice, errors = begin(start, rest[start:stop]), torch.empty_like(rest[start:stop])
        for part in range(start, stop, _PART):
            end = min(part + _PART, stop)
            if run is not None:
                inside = (slice(part, end), slice(part - start, end - start))
                square = factor[inside[0], inside[0]]
                run(Columns(part, rest[inside[0]], new[inside[0]], errors[inside[1]], square))
            for column in range(part, end) if run is None else ():
                values, error = rest[column], errors[column - start]
                new[column] = choice(column, values)
                torch.sub(values, new[column], out=error).div_(divisors[column])
                if column + 1 < end:
                    rest[column + 1 : end].addr_(factor[column, column + 1 : end], error, alpha=-1)
            done = errors[part - start : end - start]
            rest[end:stop].addmm_(factor[part:end, end:stop].T, done, alpha=-1)
        rest[stop:].addmm_(factor[start:stop, stop:].T, errors, alpha=-1)
        damped = known.damping[start:stop].sqrt().unsqueeze(1)
        lost += errors.square_().sum(0)
        lost -= (new[start:stop] - before[start:stop]).mul_(damped).square_().sum(0)
    return new.index_select(0, known.order.argsort()).T, lost


def reconstruction_errors(weight: Tensor, rounded: Tensor, moments: Tensor) -> Tensor:
    """Return the mean squared change of each output, o.

    Args:
        weight: o x i.
        rounded: o x i.
        moments: i x i, the mean of x x^T over the layer's inputs.

    >>> reconstruction_errors(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 2.0]]), torch.eye(2))
    tensor([1.], dtype=torch.float64)
    """
    change = rounded.to(moments.dtype) - weight.to(moments.dtype)
    return ((change @ moments) * change).sum(1, dtype=torch.float64)

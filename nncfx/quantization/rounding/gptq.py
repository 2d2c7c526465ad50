"""GPTQ: round a weight column by column, each later column making up for the errors so far."""

from typing import Final

import torch
from torch import Tensor

from nncfx.errors import CompressionError
from nncfx.quantization.grid.fake_quantize import fake_quantize
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.rounding.adaptive_rounding import per_element

__all__ = ["gptq", "reconstruction_errors"]

_DAMPING: Final = 0.01
_BLOCK: Final = 128
_ATTEMPTS: Final = 6


@torch.no_grad()
def gptq(
    weight: Tensor,
    moments: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    spec: QuantizerSpec,
) -> Tensor:
    """Return a weight on the grid that changes what the layer computes as little as it can find.

    Columns are rounded in descending order of their inputs' energy, and the rounding error of each
    is spread over the columns that are still to come. Of each row the better one of this and of
    rounding to nearest is taken, so that no row is worse than rounded to nearest.

    Args:
        weight: o x i, float.
        moments: i x i, the mean of x x^T over the layer's inputs. An input that is always zero
            leaves its column free.
        scale: As `fake_quantize` takes it for `spec` and `weight`.
        zero_point: Shaped as `scale`.
        spec: The grid, per row (axis 0), per tensor, or by groups along the rows.

    Raises:
        CompressionError: `moments` has NaN or infinite entries.

    Source: Frantar et al. 2023, GPTQ, section 3 and algorithm 1; the order of columns is the
    "act-order" of the authors' code.
    """
    nearest = fake_quantize(weight, scale, zero_point, spec)
    order = moments.diagonal().argsort(descending=True, stable=True)
    inverse = _inverse_factor(moments.double()[order][:, order])
    steps, zeros = (per_element(one, weight, spec)[:, order] for one in (scale, zero_point))
    grid = (steps.double(), zeros.double(), spec)
    compensated = _columns(weight.double()[:, order], inverse, grid)
    back = torch.empty_like(nearest)
    back[:, order] = compensated.to(weight.dtype)
    # the same values as the hook's own rounding, to the last bit
    back = fake_quantize(back, scale, zero_point, spec)
    errors = [reconstruction_errors(weight, one, moments) for one in (back, nearest)]
    return torch.where((errors[0] < errors[1]).unsqueeze(1), back, nearest)


def reconstruction_errors(weight: Tensor, rounded: Tensor, moments: Tensor) -> Tensor:
    """Return the mean squared change of each output, o.

    Args:
        weight: o x i.
        rounded: o x i.
        moments: i x i, the mean of x x^T over the layer's inputs.

    >>> reconstruction_errors(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 2.0]]), torch.eye(2))
    tensor([1.], dtype=torch.float64)
    """
    change = rounded.double() - weight.double()
    return ((change @ moments.double()) * change).sum(1)


def _inverse_factor(moments: Tensor) -> Tensor:
    """Return the upper Cholesky factor of the damped inverse."""
    if not moments.isfinite().all():
        raise CompressionError(
            "The second moments of a layer's inputs are not finite, so its weights cannot be "
            "rounded by them. Look for NaN or infinity in the calibration data.",
        )
    diagonal = moments.diagonal()
    dead = torch.where(diagonal > 0, 0.0, 1.0).double()
    damping = _DAMPING * float(diagonal.mean()) or 1.0
    for _ in range(_ATTEMPTS):
        damped = moments + torch.diag(dead + damping)
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            factor, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(factor), upper=True)
        if not failed:
            return factor
        damping *= 10
    raise CompressionError(
        "The second moments of a layer's inputs have no inverse even with damping. Calibrate "
        "with more, and more varied, data.",
    )


def _columns(weight: Tensor, factor: Tensor, grid: tuple[Tensor, Tensor, QuantizerSpec]) -> Tensor:
    """Round `weight` (o x i) column by column, in blocks whose errors are spread together."""
    scale, zero_point, spec = grid
    rest, rounded = weight.clone(), torch.empty_like(weight)
    for start in range(0, weight.shape[1], _BLOCK):
        stop = min(start + _BLOCK, weight.shape[1])
        errors = torch.empty_like(weight[:, start:stop])
        for column in range(start, stop):
            step, zero = scale[:, column], zero_point[:, column]
            whole = torch.round(rest[:, column] / step) + zero
            rounded[:, column] = (whole.clamp(spec.quant_min, spec.quant_max) - zero) * step
            error = (rest[:, column] - rounded[:, column]) / factor[column, column]
            rest[:, column + 1 : stop] -= error.unsqueeze(1) * factor[column, column + 1 : stop]
            errors[:, column - start] = error
        rest[:, stop:] -= errors @ factor[start:stop, stop:]
    return rounded

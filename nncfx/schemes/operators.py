"""Condensa's operators on one tensor: thresholding and dtype conversion.

All are pure: tensors in, new tensors out. A threshold is inclusive: entries equal to it are kept.
Source: Condensa (Joseph et al. 2020), section 3.1, and the behaviour of its library.
"""

import math
from collections.abc import Sequence
from decimal import Decimal

import torch
from torch import Tensor

from nncfx.errors import ArgumentError, CompressionError, require_known
from nncfx.float64 import in_float64
from nncfx.schemes.masks.criteria import Criterion, resolve_criterion
from nncfx.schemes.masks.exact_masks import check_level

_DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}

_INT8_CODES = 127


def density(tensor: Tensor) -> float:
    """Return the fraction of non-zero entries; 0.0 for an empty tensor.

    >>> density(torch.tensor([0.0, 1.0, 2.0, 3.0]))
    0.75
    """
    return int(torch.count_nonzero(tensor)) / tensor.numel() if tensor.numel() else 0.0


def sparsity(tensor: Tensor) -> float:
    """Return the fraction of zero entries: `1 - density(tensor)`."""
    return 1.0 - density(tensor)


def level_to_density(level: float) -> float:
    """Return Condensa's density, `1 - level`, without the rounding of binary floats.

    With decimal arithmetic, level 0.9 of 10 entries keeps one; `int((1 - 0.9) * 10)` is 0.

    >>> level_to_density(0.9)
    0.1
    """
    return float(Decimal(1) - Decimal(repr(check_level(level))))


def threshold(values: Tensor, density: float) -> float:
    """Return the `floor(density * n)`-th largest magnitude of the n `values`.

    Args:
        values: Weights or scores of any shape, n in all.
        density: Fraction of values that must reach the threshold, in (0, 1].

    Raises:
        CompressionError: the count is zero, or a value is NaN.

    >>> [threshold(torch.arange(30.0), d) for d in (0.2, 0.3, 0.5)]
    [24.0, 21.0, 15.0]
    """
    magnitudes = values.detach().abs().flatten()
    count = math.floor(density * magnitudes.numel())
    if count == 0:
        raise CompressionError(
            f"A density of {density:g} keeps none of {magnitudes.numel()} entries, and a model "
            "of zeros computes nothing. Use a lower level."
        )
    if torch.isnan(magnitudes).any():
        raise CompressionError(
            "The weights have NaN entries, which have no magnitude to rank by. Train the model "
            "to finite weights first."
        )
    return float(torch.kthvalue(magnitudes, magnitudes.numel() - count + 1).values)


def prune(weight: Tensor, threshold: float) -> Tensor:
    """Return `weight` with the entries of magnitude below `threshold` set to zero.

    >>> prune(torch.tensor([1.0, -2.0, 3.0]), 2.0)
    tensor([ 0., -2.,  3.])
    """
    return weight.masked_fill(~_reaches(weight.abs(), threshold), 0)


def block_scores(weight: Tensor, block_size: Sequence[int], criterion: Criterion) -> Tensor:
    """Return the score of every block of `weight`, in the shape of the grid of blocks.

    Args:
        weight: Any number of axes.
        block_size: Extent of a block along each axis; each divides the weight's.
        criterion: Reduces the weights of one block to one score.

    Raises:
        ArgumentError: the block does not tile the weight.

    >>> block_scores(torch.ones(2, 4), (1, 2), "sum")
    tensor([[2., 2.],
            [2., 2.]])
    """
    shape = tuple(weight.shape)
    size = tuple(block_size)
    if len(size) != len(shape) or any(b < 1 or n % b for n, b in zip(shape, size, strict=False)):
        raise ArgumentError(
            f"blocks of {size} do not tile a weight of {shape}; a block needs as many axes as the "
            "weight, and each extent must divide the weight's. Choose divisors."
        )
    axes = len(shape)
    tiled = weight.reshape([e for n, b in zip(shape, size, strict=True) for e in (n // b, b)])
    blocks = tiled.permute(*range(0, 2 * axes, 2), *range(1, 2 * axes, 2))
    grid = blocks.shape[:axes]
    return resolve_criterion(criterion)(blocks.reshape(-1, math.prod(size))).view(grid)


def block_mask(
    weight: Tensor,
    threshold: float,
    block_size: Sequence[int],
    criterion: Criterion = "l2norm",
    align: int | None = None,
) -> Tensor:
    """Return the mask, in the shape of `weight`, of the blocks whose score reaches `threshold`.

    With `align`, the number of kept blocks is rounded down to a multiple of it (possibly 0), and
    those of largest score are kept; among equal ones the earlier.

    Raises:
        ArgumentError: the block does not tile the weight, or the weight has fewer than `align`
            blocks.
    """
    scores = block_scores(weight, block_size, criterion)
    mask = _reaches(scores, threshold)
    if align is not None:
        if align < 1 or scores.numel() < align:
            raise ArgumentError(
                f"align is {align}, but the weight of shape {tuple(weight.shape)} has "
                f"{scores.numel()} blocks; a multiple of align must exist. Use an align from 1 "
                f"to {scores.numel()}."
            )
        order = torch.argsort(scores.flatten(), descending=True, stable=True)
        mask = torch.zeros_like(scores, dtype=torch.bool).flatten()
        count = int(_reaches(scores, threshold).sum()) // align * align
        mask[order[:count]] = True
        mask = mask.view(scores.shape)
    for axis, extent in enumerate(block_size):
        mask = mask.repeat_interleave(extent, dim=axis)
    return mask


def blockprune(
    weight: Tensor,
    threshold: float,
    block_size: Sequence[int],
    criterion: Criterion = "l2norm",
    align: int | None = None,
) -> Tensor:
    """Return `weight` with every block whose score is below `threshold` set to zero.

    Raises:
        ArgumentError: as `block_mask`.
    """
    return weight.masked_fill(~block_mask(weight, threshold, block_size, criterion, align), 0)


def row_mask(
    weight: Tensor, threshold: float, criterion: Criterion = "l2norm", align: int | None = None
) -> Tensor:
    """Return o bools: which rows (filters, neurons) of an `o x ...` weight reach `threshold`.

    Raises:
        ArgumentError: as `block_mask`.
    """
    block = (1, *weight.shape[1:])
    return block_mask(weight, threshold, block, criterion, align).flatten(1)[:, 0]


def filter_prune(
    weight: Tensor,
    threshold: float,
    *,
    bias: Tensor | None = None,
    criterion: Criterion = "l2norm",
    align: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return an `o x i x k x k` weight, and its bias, with weak filters set to zero.

    Raises:
        ArgumentError: the weight does not have 4 axes, or as `block_mask`.
    """
    if weight.ndim != 4:  # noqa: PLR2004 (o x i x k x k)
        raise ArgumentError(
            f"filter_prune takes an o x i x k x k weight, but this one has shape "
            f"{tuple(weight.shape)}. Use neuron_prune for o x i, or blockprune."
        )
    return _rows_prune(weight, bias, row_mask(weight, threshold, criterion, align))


def neuron_prune(
    weight: Tensor,
    threshold: float,
    *,
    bias: Tensor | None = None,
    criterion: Criterion = "l2norm",
    align: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return an `o x i` weight, and its bias, with weak rows set to zero.

    Raises:
        ArgumentError: the weight does not have 2 axes, or as `block_mask`.
    """
    if weight.ndim != 2:  # noqa: PLR2004 (o x i)
        raise ArgumentError(
            f"neuron_prune takes an o x i weight, but this one has shape {tuple(weight.shape)}. "
            "Use filter_prune for o x i x k x k, or blockprune."
        )
    return _rows_prune(weight, bias, row_mask(weight, threshold, criterion, align))


def float_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return the torch dtype for a name ("float16", "bfloat16", "float32", "float64").

    Raises:
        ArgumentError: not one of these.
    """
    name = str(dtype).removeprefix("torch.")
    require_known("floating dtype", name, _DTYPES)
    return _DTYPES[name]


def quantize(tensor: Tensor, dtype: str | torch.dtype) -> Tensor:
    """Return `tensor` rounded to nearest, ties to even, in `dtype`.

    Raises:
        ArgumentError: `dtype` is not a floating dtype.
        CompressionError: a finite value overflows `dtype` (65504 is the largest of float16).

    >>> quantize(torch.tensor([0.1]), "float16").item()
    0.0999755859375
    """
    cast = tensor.to(float_dtype(dtype))
    if torch.isfinite(cast).all() or not torch.isfinite(tensor).all():
        return cast
    raise CompressionError(
        f"The largest magnitude, {float(tensor.abs().max()):g}, does not fit {cast.dtype}, whose "
        f"largest is {torch.finfo(cast.dtype).max:g}. Use bfloat16, or rescale the layer."
    )


def int8_grid(weight: Tensor) -> Tensor:
    """Return an `o x ...` weight rounded to `-127 .. 127` steps, with one step per row.

    The step is the row's largest magnitude over 127, as the float32 by which files multiply codes,
    so zero is a code and the largest entry is 127 steps; a row of zeros is unchanged. Ties round
    to even. Rounding again changes nothing, bitwise, for float32 and narrower.

    Raises:
        CompressionError: an entry is not finite.

    >>> int8_grid(torch.tensor([[127.0, 1.4, -0.5]]))
    tensor([[127.,   1.,   0.]])
    """
    if not torch.isfinite(weight).all():
        raise CompressionError(
            "The weights have entries that are not finite, which no grid holds. Train the model "
            "to finite weights first."
        )
    rows = in_float64(weight.detach()).flatten(1)
    # the same step is found again from 127 of these steps, rounded
    step = in_float64((rows.abs().amax(1, keepdim=True) / _INT8_CODES).float())
    codes = torch.where(step > 0, rows / step, 0.0).round() + 0.0  # no -0.0
    return (codes * step).float().view(weight.shape).to(weight)


def dequantize(tensor: Tensor, dtype: str | torch.dtype = torch.float32) -> Tensor:
    """Return `tensor` in `dtype`; its values stay on the grid.

    Raises:
        ArgumentError: `dtype` is not a floating dtype.
    """
    return tensor.to(float_dtype(dtype))


def _reaches(scores: Tensor, threshold: float) -> Tensor:
    # half-precision scores would round the threshold to their own grid
    return scores.to(torch.promote_types(scores.dtype, torch.float32)) >= threshold


def _rows_prune(weight: Tensor, bias: Tensor | None, keep: Tensor) -> tuple[Tensor, Tensor | None]:
    rows = keep.view(-1, *[1] * (weight.ndim - 1))
    return weight.masked_fill(~rows, 0), None if bias is None else bias.masked_fill(~keep, 0)

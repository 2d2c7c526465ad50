"""Rescaling of integers by a multiplier and a shift, in integers and in float64.

Both forms round half to even and give the same integers, bit for bit: a product of 31 bits and a
multiplier of 22 bits fits the 53 bits of a float64 exactly.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

_BITS: Final = 22
_LARGEST_SHIFT: Final = 62
"""Shifting a product of 53 bits by this or any larger amount gives zero."""


@dataclass(frozen=True)
class FixedPoint:
    """The factor `multiplier * 2**-shift`.

    Attributes:
        multiplier: int64, in [2**21, 2**22].
        shift: int64, of the same shape; negative for a shift to the left.
    """

    multiplier: Tensor
    shift: Tensor


def fixed_point(factor: Tensor) -> FixedPoint:
    """Return the nearest fixed-point number to `factor`, a positive float64 tensor.

    The relative error is at most 2**-22; powers of two are exact.

    >>> one = fixed_point(torch.tensor(0.75, dtype=torch.float64))
    >>> int(one.multiplier) / 2 ** int(one.shift)
    0.75
    """
    mantissa, exponent = torch.frexp(factor)
    multiplier = torch.round(mantissa * 2**_BITS).to(torch.int64)
    shift = (_BITS - exponent.to(torch.int64)).clamp(max=_LARGEST_SHIFT)
    return FixedPoint(multiplier, shift)


def rescaled_integers(values: Tensor, factor: FixedPoint) -> Tensor:
    """Return `values` (int64, at most 31 bits) times `factor`, half to even, as int64.

    >>> half = fixed_point(torch.tensor(0.5, dtype=torch.float64))
    >>> rescaled_integers(torch.tensor([-3, -1, 1, 2, 3]), half).tolist()
    [-2, 0, 0, 1, 2]
    """
    right = factor.shift.clamp(min=0)
    product = values * factor.multiplier << (right - factor.shift)
    floor = product >> right
    rest = product - (floor << right)
    # compare twice the remainder with one, which also works for a shift by zero
    doubled, one = rest << 1, torch.ones_like(right) << right
    up = (doubled > one) | ((doubled == one) & (floor & 1).bool())
    return floor + up


def rescaled_floats(values: Tensor, factor: FixedPoint) -> Tensor:
    """Return the result of `rescaled_integers` for integers in float64, in float64."""
    scale = factor.multiplier.to(values.dtype) * torch.exp2(-factor.shift.to(values.dtype))
    return torch.round(values * scale)


def wrapped(values: Tensor, bits: int) -> Tensor:
    """Return `values`, whole numbers, wrapped to an integer register of `bits` bits.

    >>> wrapped(torch.tensor([127.0, 128.0, -129.0]), 8).tolist()
    [127.0, -128.0, 127.0]
    """
    half, size = 1 << (bits - 1), 1 << bits
    # exact in every dtype: the sum of a value and `half` could exceed the precision of floats
    rest = torch.fmod(values, size)
    rest = torch.where(rest >= half, rest - size, rest)
    return torch.where(rest < -half, rest + size, rest)

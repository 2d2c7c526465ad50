"""Pure functions that process integer sums like integer kernels.

Whole numbers are stored in float64, where they are exact. Operations that a kernel computes in
float32 are computed in float32 here, in the same order, so results are equal bitwise.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from nncfx.quantization.grid.fake_quantize import along_axis

Pending = Callable[[Tensor, Tensor], Tensor]
"""A result to be quantized: maps scale and zero point to whole steps from 0, not yet clipped."""

_SMALLEST: Final = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, kw_only=True, eq=False)
class Lattice:
    """The grid of a quantized tensor, whose elements are whole numbers of steps.

    Attributes:
        scale: The step, a scalar or one per index of `axis`.
        zero_point: The integer that represents 0, of the same shape.
        axis: None for one step for the whole tensor.
        bits: Width of its integers.
    """

    scale: Tensor
    zero_point: Tensor
    axis: int | None
    bits: int

    def steps(self, x: Tensor) -> Tensor:
        """Return the elements of `x` as whole numbers of steps."""
        return torch.round(x.double() / along_axis(self.scale, x, self.axis).double())

    def equals(self, other: "Lattice") -> bool:
        """Return whether both have a single step and zero point, which are equal."""
        if self.axis is not None or other.axis is not None:
            return False
        return bool(self.scale == other.scale) and bool(self.zero_point == other.zero_point)


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchNorm:
    """The constants of a batch norm, one per channel; `weight` and `bias` may be None."""

    mean: Tensor
    variance: Tensor
    weight: Tensor | None
    bias: Tensor | None
    epsilon: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Sums:
    """Sums of products of integers, before they are scaled.

    Attributes:
        total: The exact sums without the bias.
        input_scale: The step of the layer's input, a scalar.
        weight_scale: The step of its weight, a scalar or one per output channel.
        bias: One per output channel, float, or None.
        axis: Axis of the output channels.
    """

    total: Tensor
    input_scale: Tensor
    weight_scale: Tensor
    bias: Tensor | None
    axis: int

    def whole(self) -> Tensor:
        """Return the sums with the bias as an integer, like a kernel's sums in 32 bits."""
        if self.bias is None:
            return self.total
        step = self.input_scale.double() * self.weight_scale.double()
        return self.total + along_axis(
            torch.round(self.bias.double() / step), self.total, self.axis
        )

    def values(self) -> Tensor:
        """Return the numbers that the sums represent, float32."""
        step = self.input_scale * self.weight_scale
        return self.whole().float() * along_axis(step, self.total, self.axis)

    def quantized(self, scale: Tensor, zero_point: Tensor) -> Tensor:
        """Return the sums in steps of `scale`; a `Pending`.

        Source: ONNX Runtime 1.31, `QLinearConv` and `MlasRequantizeOutput`.
        """
        del zero_point
        factor = self.input_scale * self.weight_scale / scale
        return torch.round(self.whole().float() * along_axis(factor, self.total, self.axis))

    def normed(self, norm: BatchNorm) -> "Sums":
        """Return the sums after a batch norm, which changes steps, biases and signs.

        A channel that it multiplies by 0 gets sums of 0 and steps of 1.
        """
        weight = torch.ones_like(norm.mean) if norm.weight is None else norm.weight
        factor = weight.double() / torch.sqrt(norm.variance.double() + norm.epsilon)
        mean = norm.mean.double()
        bias = (-mean if self.bias is None else self.bias.double() - mean) * factor
        if norm.bias is not None:
            bias = bias + norm.bias.double()
        scale = self.weight_scale.double() * factor.abs()
        dead = scale < _SMALLEST
        sign = torch.where(dead, 0.0, torch.where(factor < 0, -1.0, 1.0))
        return replace(
            self,
            total=self.total * along_axis(sign, self.total, self.axis),
            weight_scale=torch.where(dead, 1.0, scale).float(),
            bias=bias.float(),
        )


def added(x: Tensor, of_x: Lattice, y: Tensor, of_y: Lattice) -> Pending:
    """Return the sum of two quantized tensors as a `Pending`.

    Source: ONNX Runtime 1.31, `MlasQLinearAdd` on x86 with AVX2 and FMA. ARM multiplies by
    integers instead.
    """
    first, second = (grid.steps(one) + grid.zero_point for one, grid in ((x, of_x), (y, of_y)))

    def quantized(scale: Tensor, zero_point: Tensor) -> Tensor:
        left, right = of_x.scale / scale, of_y.scale / scale
        offset = _fused(of_x.zero_point.double(), left, right * of_y.zero_point)
        part = _fused(second, right, zero_point - offset)
        return torch.round(_fused(first, left, part)) - zero_point

    return quantized


def multiplied(x: Tensor, of_x: Lattice, y: Tensor, of_y: Lattice) -> Pending:
    """Return the product of two quantized tensors as a `Pending`.

    Source: ONNX Runtime 1.31, `MlasQLinearMul` on x86: scaled, and then shifted.
    """
    product = (of_x.steps(x) * of_y.steps(y)).float()

    def quantized(scale: Tensor, zero_point: Tensor) -> Tensor:
        factor = of_x.scale * of_y.scale / scale
        return torch.round(product * factor + zero_point) - zero_point

    return quantized


def pooled(total: Tensor, count: int, scale: Tensor) -> Pending:
    """Return `total`, a sum of `count` whole steps of `scale`, divided by `count`, as a `Pending`.

    Source: ONNX Runtime 1.31, `MlasQLinearGlobalAveragePool`.
    """

    def quantized(wanted: Tensor, zero_point: Tensor) -> Tensor:
        del zero_point
        return torch.round(total.float() * (scale / (wanted * count)))

    return quantized


def _fused(x: Tensor, factor: Tensor, addend: Tensor) -> Tensor:
    """Return `x * factor + addend` rounded once; products of float32 are exact in float64."""
    return (x * factor.double() + addend.double()).float()

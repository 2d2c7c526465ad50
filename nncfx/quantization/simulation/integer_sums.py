"""What integer kernels make of their sums: pure functions on tensors of whole numbers.

Whole numbers are held in float64, where they are exact. What a kernel computes in float32 is
computed in float32 here, operation by operation, so that the results are equal in every bit.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from nncfx.quantization.grid.fake_quantize import along_axis

Pending = Callable[[Tensor, Tensor], Tensor]
"""Takes a scale and a zero point; returns whole numbers of steps from 0, not yet clipped."""

_SMALLEST: Final = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, kw_only=True, eq=False)
class Lattice:
    """The grid of a quantized tensor, whose elements are whole numbers of steps.

    Attributes:
        scale: the step, a scalar or one per index of `axis`.
        zero_point: the integer that stands for 0, of the same shape.
        axis: None for one step for the whole tensor.
        bits: of its integers.
    """

    scale: Tensor
    zero_point: Tensor
    axis: int | None
    bits: int

    def steps(self, x: Tensor) -> Tensor:
        """Return the elements of `x` as whole numbers of steps."""
        return torch.round(x.double() / along_axis(self.scale, x, self.axis).double())

    def equals(self, other: "Lattice") -> bool:
        """Return whether both have one step, the same, and the same zero point."""
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
        total: the exact sums without the bias.
        input_scale: the step of the layer's input, a scalar.
        weight_scale: the step of its weight, a scalar or one per output channel.
        bias: one per output channel, float, or None.
        axis: of the output channels.
    """

    total: Tensor
    input_scale: Tensor
    weight_scale: Tensor
    bias: Tensor | None
    axis: int

    def whole(self) -> Tensor:
        """Return the sums as a kernel has them in 32 bits: with the bias as an integer."""
        if self.bias is None:
            return self.total
        step = self.input_scale.double() * self.weight_scale.double()
        return self.total + along_axis(
            torch.round(self.bias.double() / step), self.total, self.axis
        )

    def values(self) -> Tensor:
        """Return the numbers that the sums stand for, float32."""
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
        """Return what a batch norm makes of the sums: other steps, another bias, another sign.

        A channel that it multiplies by 0 has sums of 0 and steps of 1.
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
    """Return the sum of two quantized tensors, to be quantized.

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
    """Return the product of two quantized tensors, to be quantized.

    Source: ONNX Runtime 1.31, `MlasQLinearMul` on x86: scaled, and then shifted.
    """
    product = (of_x.steps(x) * of_y.steps(y)).float()

    def quantized(scale: Tensor, zero_point: Tensor) -> Tensor:
        factor = of_x.scale * of_y.scale / scale
        return torch.round(product * factor + zero_point) - zero_point

    return quantized


def pooled(total: Tensor, count: int, scale: Tensor) -> Pending:
    """Return the mean of `count` numbers that are whole numbers of `scale`, to be quantized.

    Source: ONNX Runtime 1.31, `MlasQLinearGlobalAveragePool`.
    """

    def quantized(wanted: Tensor, zero_point: Tensor) -> Tensor:
        del zero_point
        return torch.round(total.float() * (scale / (wanted * count)))

    return quantized


def _fused(x: Tensor, factor: Tensor, addend: Tensor) -> Tensor:
    """Return `x * factor + addend` rounded once; the product of float32 is exact in float64."""
    return (x * factor.double() + addend.double()).float()

"""Rounding to a grid of integers and back: pure functions, with their gradients.

Values are those of torch's `fake_quantize_*`: ties go to the even integer, and what lies beyond
the grid is clipped to its ends.
"""

from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from nncfx.quantization.spec import FLOAT8_MAX, QuantizerSpec

__all__ = [
    "fake_quantize",
    "learned_fake_quantize",
    "qparams_from_range",
    "qparams_from_threshold",
    "range_of",
]

_FLOAT8 = {"float8_e4m3": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
_SMALLEST = 2.0**-100
"""A scale is at least this: what is all zero has some grid, too."""


def fake_quantize(x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantizerSpec) -> Tensor:
    """Return `x` rounded to the grid of `spec`; its gradient passes straight through the range.

    Args:
        x: Any shape, float.
        scale: The distance of two neighbours on the grid, positive: a scalar, one per index of
            `spec.axis`, or one per group.
        zero_point: The integer that stands for 0, int32, shaped as `scale`.
        spec: The grid.
    """
    if spec.is_float8:
        return _float8(x, scale, spec)
    low, high = spec.quant_min, spec.quant_max
    if spec.group is not None:
        rows = x.reshape(-1, spec.group)
        rounded = torch.fake_quantize_per_channel_affine(rows, scale, zero_point, 0, low, high)
        return rounded.reshape(x.shape)
    if spec.axis is not None:
        return torch.fake_quantize_per_channel_affine(x, scale, zero_point, spec.axis, low, high)
    return torch.fake_quantize_per_tensor_affine(x, scale, zero_point, low, high)


def _float8(x: Tensor, scale: Tensor, spec: QuantizerSpec) -> Tensor:
    scale = along_axis(scale, x, spec)
    largest = FLOAT8_MAX[spec.mode]
    grouped = x.reshape(-1, spec.group) if spec.group is not None else x
    inside = (grouped / scale).clamp(-largest, largest)
    rounded = inside.detach().to(_FLOAT8[spec.mode]).to(x.dtype)
    # the difference is a constant, so that the gradient is that of the clipping
    return ((inside + (rounded - inside).detach()) * scale).reshape(x.shape)


def along_axis(value: Tensor, x: Tensor, spec: QuantizerSpec) -> Tensor:
    """Return a value per channel shaped so that it broadcasts over `x` (by groups, if any)."""
    if spec.group is not None:
        return value.reshape(-1, 1)
    if spec.axis is None:
        return value
    shape = [1] * x.ndim
    shape[spec.axis] = -1
    return value.reshape(shape)


def qparams_from_threshold(threshold: Tensor, spec: QuantizerSpec) -> tuple[Tensor, Tensor]:
    """Return scale and zero point of a symmetric grid: `threshold / 2^(bits - sign)`.

    The threshold itself is one step beyond the largest integer and is clipped to it. Float8
    scales put the threshold on the largest finite number.

    Args:
        threshold: Not negative, a scalar or one per channel.
        spec: The grid; of the asymmetric ones the unsigned and signed with the range around 0.

    Source: Hago, `scale = threshold / 2^(bits - sign)`.

    >>> qparams_from_threshold(torch.tensor(2.0), QuantizerSpec())[0]
    tensor(0.0156)
    """
    divisor = FLOAT8_MAX[spec.mode] if spec.is_float8 else spec.steps_per_threshold
    scale = _whole_power(threshold / divisor, spec)
    return scale, torch.zeros_like(scale, dtype=torch.int32)


def qparams_from_range(low: Tensor, high: Tensor, spec: QuantizerSpec) -> tuple[Tensor, Tensor]:
    """Return scale and zero point of the grid that holds `low` to `high`, and 0, exactly.

    In the symmetric mode the larger of `|low|`, `|high|` is the largest integer (with an unsigned
    grid, `high` is). In the asymmetric one the range is widened to hold 0, and shifted by less
    than a step so that 0 is on the grid, as `torch.ao` does it.

    Args:
        low: The lower end, a scalar or one per channel.
        high: The upper end, not below `low`.
        spec: The grid.

    Source: NNCF 2.19, symmetric quantization (step = scale / level_high).
    """
    low, high = low.clamp(max=0), high.clamp(min=0)
    if spec.mode != "asymmetric":
        peak = torch.maximum(-low, high) if spec.signed else high
        largest = FLOAT8_MAX[spec.mode] if spec.is_float8 else spec.quant_max
        scale = _whole_power(peak / largest, spec)
        return scale, torch.zeros_like(scale, dtype=torch.int32)
    scale = _whole_power((high - low) / (spec.quant_max - spec.quant_min), spec)
    zero_point = (spec.quant_min - torch.round(low / scale)).clamp(spec.quant_min, spec.quant_max)
    return scale, zero_point.to(torch.int32)


def _whole_power(scale: Tensor, spec: QuantizerSpec) -> Tensor:
    scale = scale.clamp(min=_SMALLEST)
    return torch.exp2(torch.ceil(torch.log2(scale))) if spec.power_of_two else scale


def range_of(scale: Tensor, zero_point: Tensor, spec: QuantizerSpec) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest number on the grid."""
    if spec.is_float8:
        return -scale * FLOAT8_MAX[spec.mode], scale * FLOAT8_MAX[spec.mode]
    return (spec.quant_min - zero_point) * scale, (spec.quant_max - zero_point) * scale


def learned_fake_quantize(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    spec: QuantizerSpec,
) -> Tensor:
    """Return what `fake_quantize` does, with gradients to scale and zero point as well.

    Inside the range an element's gradient to the scale is `round(x/s) - x/s`; beyond it, it is
    the end of the grid, and the zero point has `-s`.

    Args:
        x: Any shape, float.
        scale: Positive; see `fake_quantize`.
        zero_point: A float tensor of whole numbers, shaped as `scale`.
        spec: A grid of integers without groups.

    Source: Esser et al., "Learned step size quantization", 2020, equation 3; Bhalgat et al.,
    "LSQ+", 2020, equations 3 and 4.
    """
    result: Tensor = _Learned.apply(  # type: ignore[no-untyped-call]  # torch leaves it so
        x, scale, zero_point, spec.axis, spec.quant_min, spec.quant_max
    )
    return result


class _Learned(torch.autograd.Function):
    @staticmethod
    @override
    def forward(  # type: ignore[override]
        ctx: Any,
        x: Tensor,
        scale: Tensor,
        zero_point: Tensor,
        axis: int | None,
        low: int,
        high: int,
    ) -> Tensor:
        whole = zero_point.to(torch.int32)
        if axis is None:
            rounded = torch.fake_quantize_per_tensor_affine(x, scale, whole, low, high)
        else:
            rounded = torch.fake_quantize_per_channel_affine(x, scale, whole, axis, low, high)
        ctx.axis, ctx.low, ctx.high = axis, low, high
        ctx.save_for_backward(x, rounded, scale, zero_point)
        return rounded

    @staticmethod
    @override
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        x, rounded, scale, zero_point = ctx.saved_tensors
        shape, axes = [1] * x.ndim, list(range(x.ndim))
        if ctx.axis is not None:
            shape[ctx.axis] = -1
            axes.remove(ctx.axis)
        wide_scale = scale.reshape(shape)
        wide_zero = zero_point.reshape(shape)
        # half a step beyond the ends still rounds to them
        least = (ctx.low - 0.5 - wide_zero) * wide_scale
        most = (ctx.high + 0.5 - wide_zero) * wide_scale
        inside = (x >= least) & (x <= most)
        grad_x = grad * inside
        error = torch.where(inside, rounded - x, rounded)
        grad_scale = (grad * error).sum(axes).reshape(scale.shape) / scale
        grad_zero = None
        if ctx.needs_input_grad[2]:
            grad_zero = -(grad - grad_x).sum(axes).reshape(scale.shape) * scale
        return grad_x, grad_scale, grad_zero, None, None, None

"""Pure functions, with gradients, that round to a grid of integers and back.

Results equal those of torch's `fake_quantize_*` bitwise: ties go to the even integer, and values
beyond the grid are clipped to its ends. NaN stays NaN.
"""

from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd import forward_ad
from typing_extensions import override

from nncfx.quantization.grid.operator_shapes import know_shapes
from nncfx.quantization.grid.spec import FLOAT8_MAX, QuantizerSpec
from nncfx.schemes.wide_floats import wide
from nncfx.storage.models.codebooks import from_codes, nearest_codes
from nncfx.tracing.calls.tensors import is_transformed

FLOAT8_DTYPES: Final = {"float8_e4m3": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
_SMALLEST = 2.0**-100
"""Smallest scale, so that an all-zero tensor has a valid grid."""


def fake_quantize(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    spec: QuantizerSpec,
    *,
    gradient_scale: float = 1.0,
) -> Tensor:
    """Return `x` rounded to the grid of `spec`.

    The gradient passes straight through inside the range and is zero beyond it. If `scale` or a
    float `zero_point` requires a gradient: inside the range, an element's gradient to the scale is
    `round(x/s) - x/s`; beyond it, the gradient to the scale is the end of the grid and that to the
    zero point is `-s`.

    During export this calls torch's own `fake_quantize_per_tensor_affine` or
    `fake_quantize_per_channel_affine`, which exporters know. Otherwise it computes the same values
    with simple operations, which are many times as fast on a CPU and fuse when compiled.

    Args:
        x: Any shape, float.
        scale: The distance between neighbours on the grid, positive: a scalar, one per index of
            `spec.axis`, or one per group.
        zero_point: The whole number that represents 0, shaped as `scale`.
        spec: The grid.
        gradient_scale: Multiplies the gradients to `scale` and `zero_point`.

    Source: Esser et al., "Learned step size quantization", 2020, equation 3; Bhalgat et al.,
    "LSQ+", 2020, equations 3 and 4.
    """
    if spec.group is not None:
        rows, by_row = rows_of(x, spec), spec.replace(group=None, columns=False, axis=0)
        on_grid = fake_quantize(rows, scale, zero_point, by_row, gradient_scale=gradient_scale)
        return from_rows(on_grid, x, spec)
    if not spec.is_integer:
        return _table(x, scale, spec)
    if torch.compiler.is_exporting():
        return _native(x, scale, zero_point, spec)
    values, scale = wide(x), wide(scale)
    scale, zero_point = (
        along_axis(one, x, spec.axis) for one in (scale, zero_point.to(scale.dtype))
    )
    ends = (float(spec.quant_min), float(spec.quant_max))
    rounded: Tensor
    if _is_differentiated_otherwise():
        rounded = _rounded_by_parts(values, scale, zero_point, ends, gradient_scale)
    else:
        rounded = _Rounded.apply(  # type: ignore[no-untyped-call]
            values, scale, zero_point, ends, gradient_scale
        )
    return rounded.to(x.dtype)


def to_integers(x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantizerSpec) -> Tensor:
    """Return the whole numbers that `fake_quantize` rounds `x` to, as floats, in its shape.

    For float8 they are the multiples of the scale, for a codebook the codes. Half precision is
    computed in float32.
    """
    if spec.group is not None:
        rows, by_row = rows_of(x, spec), spec.replace(group=None, columns=False, axis=0)
        return from_rows(to_integers(rows, scale, zero_point, by_row), x, spec)
    scale = wide(scale)
    shaped = [along_axis(one, x, spec.axis) for one in (scale, zero_point.to(scale.dtype))]
    if spec.is_float8:
        largest = FLOAT8_MAX[spec.mode]
        return (x / shaped[0]).clamp(-largest, largest)
    values = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    if spec.is_codebook:
        return nearest_codes(values / shaped[0], spec.mode).to(values.dtype)
    return _levels(values, *shaped).clamp_(float(spec.quant_min), float(spec.quant_max))


def _levels(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    # torch multiplies by the inverse, which can round differently from a division
    return (x * (1 / scale)).round_().add_(zero_point)


def _native(x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantizerSpec) -> Tensor:
    know_shapes()
    low, high = spec.quant_min, spec.quant_max
    if scale.requires_grad:
        scale, zero_point = scale.detach(), zero_point.detach()
    if zero_point.dtype != torch.int32:
        zero_point = zero_point.to(torch.int32)
    if spec.axis is None:
        return torch.fake_quantize_per_tensor_affine(x, scale, zero_point, low, high)
    axis = spec.axis % x.ndim
    return torch.fake_quantize_per_channel_affine(x, scale, zero_point, axis, low, high)


def _table(x: Tensor, scale: Tensor, spec: QuantizerSpec) -> Tensor:
    scale = along_axis(scale, x, spec.axis)
    inside = (x / scale).clamp(-spec.peak, spec.peak)
    if spec.is_codebook:
        values = inside.detach().to(wide(inside).dtype)
        rounded = from_codes(nearest_codes(values, spec.mode), spec.mode, x.dtype)
    else:
        rounded = inside.detach().to(FLOAT8_DTYPES[spec.mode]).to(x.dtype)
    # the difference is detached, so the gradient is that of the clipping
    return ((inside + (rounded - inside).detach()) * scale).to(x.dtype)


def rows_of(x: Tensor, spec: QuantizerSpec) -> Tensor:
    """Return the groups of `x`, one per row."""
    assert spec.group is not None  # noqa: S101 (the callers ask)
    return (x.mT if spec.columns else x).reshape(-1, spec.group)


def from_rows(rows: Tensor, x: Tensor, spec: QuantizerSpec) -> Tensor:
    """Return `rows` in the shape of `x`; the inverse of `rows_of`."""
    return rows.reshape(x.mT.shape).mT if spec.columns else rows.reshape(x.shape)


def along_axis(value: Tensor, x: Tensor, axis: int | None) -> Tensor:
    """Reshape `value`, one number per index of `axis`, to broadcast over `x`."""
    if axis is None:
        return value
    shape = [1] * x.ndim
    shape[axis] = -1
    return value.reshape(shape)


class _Rounded(torch.autograd.Function):
    """`(clamp(round(x / s) + z) - z) * s`, with straight-through gradients to x, s and z."""

    @staticmethod
    @override
    def forward(
        ctx: Any,
        x: Tensor,
        scale: Tensor,
        zero_point: Tensor,
        ends: tuple[float, float],
        gradient_scale: float,
    ) -> Tensor:
        ctx.ends, ctx.gradient_scale = ends, gradient_scale
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            steps = x * (1 / scale)  # as in _levels
            ctx.save_for_backward(steps, scale, zero_point)
            levels = steps.round().add_(zero_point)
        else:
            levels = _levels(x, scale, zero_point)
            if ctx.needs_input_grad[0]:
                ctx.save_for_backward(levels)
                return levels.clamp(*ends).sub_(zero_point).mul_(scale)
        return levels.clamp_(*ends).sub_(zero_point).mul_(scale)

    @staticmethod
    @override
    def backward(ctx: Any, grad: Tensor) -> Any:
        low, high = ctx.ends
        factor = ctx.gradient_scale
        grad = grad.to_dense() if grad.is_sparse else grad  # of an Embedding(sparse=True)
        saved = ctx.saved_tensors  # torch.utils.checkpoint returns them only once
        if len(saved) == 1:
            return _inside(grad, saved[0], low, high), None, None, None, None
        steps, scale, zero_point = saved
        levels = steps.round().add_(zero_point)
        grad_x = _inside(grad, levels, low, high)
        grad_zero = None
        if ctx.needs_input_grad[2]:
            beyond = grad - grad_x
            grad_zero = beyond.sum_to_size(scale.shape) * -scale * factor
        straight = _inside(steps, levels, low, high)
        # a double backward needs the levels, so they are not clipped in place then
        clipped = levels.clamp(low, high) if torch.is_grad_enabled() else levels.clamp_(low, high)
        # the rounding error inside the grid, the end of the grid beyond it
        by_scale = clipped.sub_(zero_point).sub_(straight)
        grad_scale = _summed(grad, by_scale, scale)
        return grad_x, grad_scale * factor, grad_zero, None, None


def _is_differentiated_otherwise() -> bool:
    """Return whether a torch.func transform or forward-mode differentiation is active."""
    if torch.compiler.is_compiling():
        return False
    return is_transformed() or forward_ad._current_level >= 0  # noqa: SLF001 (no public way)


def _rounded_by_parts(
    x: Tensor, scale: Tensor, zero_point: Tensor, ends: tuple[float, float], factor: float
) -> Tensor:
    """Return the result of `_Rounded`, with its gradients, by operations torch.func supports."""
    exact = _levels(x, scale, zero_point).clamp(*ends).sub_(zero_point).mul_(scale).detach()
    scale, zero_point = (
        factor * one + ((1 - factor) * one).detach() for one in (scale, zero_point)
    )
    steps = x / scale
    levels = steps + (steps.round() - steps).detach() + zero_point
    straight = (levels.clamp(*ends) - zero_point) * scale
    return exact + (straight - straight.detach())


def _inside(grad: Tensor, levels: Tensor, low: float, high: float) -> Tensor:
    """Return `grad` where `low <= levels <= high`, else 0; levels are whole numbers.

    In eager mode this is torch's gradient of hardtanh, one vectorized pass where a mask takes two
    slow ones. When compiled, a mask costs nothing and keeps the required layout of the levels.
    """
    if torch.compiler.is_compiling():
        return torch.where((levels >= low) & (levels <= high), grad, 0.0)
    passed: Tensor = torch.ops.aten.hardtanh_backward(grad, levels, low - 0.5, high + 0.5)
    return passed


def _summed(one: Tensor, other: Tensor, like: Tensor) -> Tensor:
    """Return the sum of `one * other` over all axes that `like` lacks.

    In eager mode torch.dot is fast. A compiler fuses the product and its sum anyway, and would
    copy tensors that are not contiguous, such as channels-last images.
    """
    if like.numel() == 1 and not torch.compiler.is_compiling():
        other = other.to(one.dtype)
        return torch.dot(one.flatten(), other.flatten()).reshape(like.shape).to(like.dtype)
    return (one * other).sum_to_size(like.shape).to(like.dtype)


def qparams_from_range(low: Tensor, high: Tensor, spec: QuantizerSpec) -> tuple[Tensor, Tensor]:
    """Return scale and zero point, a whole float, of the grid that covers `low`, `high` and 0.

    In symmetric mode the larger of `|low|` and `|high|` maps to the largest integer (on an
    unsigned grid, `high` does). In asymmetric mode the range is widened by less than a step so
    that 0 lies on the grid. Both results are differentiable in the ends of the range.

    Args:
        low: The lower end, a scalar or one per channel.
        high: The upper end, not below `low`.
        spec: The grid.

    Source: NNCF 2.19: symmetric, step = scale / level_high; asymmetric, the tuned range.

    >>> spec = QuantizerSpec(mode="asymmetric", signed=False)
    >>> scale, zero = qparams_from_range(torch.tensor(-0.3), torch.tensor(1.0), spec)
    >>> zero, -zero * scale
    (tensor(59.), tensor(-0.3010))
    """
    low, high = low.clamp(max=0), high.clamp(min=0)
    if spec.mode != "asymmetric":
        peak = torch.maximum(-low, high) if spec.signed else high
        scale = _admissible(peak / spec.peak, spec)
        return scale, torch.zeros_like(scale)
    steps = spec.quant_max - spec.quant_min
    width = (high - low).clamp(min=_SMALLEST)
    below = torch.round(-low * steps / width).detach()
    above = steps - below
    scale = torch.maximum(high / above.clamp(min=1), -low / below.clamp(min=1))
    scale = _admissible(scale, spec)
    if spec.power_of_two:
        # a wider grid holds fewer steps below zero
        below = torch.ceil(-low / scale).detach()
    return scale, spec.quant_min + below


def _admissible(scale: Tensor, spec: QuantizerSpec) -> Tensor:
    scale = scale.clamp(min=_SMALLEST)
    if not spec.power_of_two:
        return scale
    whole = torch.exp2(torch.ceil(torch.log2(scale)))
    return scale + (whole - scale).detach()


def range_of(scale: Tensor, zero_point: Tensor, spec: QuantizerSpec) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest number on the grid."""
    if not spec.is_integer:
        return -scale * spec.peak, scale * spec.peak
    return (spec.quant_min - zero_point) * scale, (spec.quant_max - zero_point) * scale

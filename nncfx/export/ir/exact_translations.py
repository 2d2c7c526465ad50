"""Exact translations of torch functions that torch's exporter translates inexactly or wrongly.

The exporter writes `logsigmoid` as the logarithm of a sigmoid, which is 0 for arguments below -88;
`logaddexp` as the logarithm of a sum of powers, which overflows above 88; `log1p` and `expm1` as
the naive formulas, which lose precision; a mean of `scatter_reduce` as the last value; attention
so that a fully masked query gets the mean of all values, or NaN, where torch returns 0; an
antialiased resize by the sizes, even if the given scale factors differ; and `squeeze` unchanged
for an axis longer than 1, which torch ignores and ONNX refuses.

Import this module only when a file is written, because it needs onnxscript.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import onnx_ir as ir
import torch
from onnxscript import opset20
from onnxscript.function_libs.torch_lib.ops import core, nn

# ruff: noqa: ANN401 (symbolic values of the exporter)

op: Final[Any] = opset20
_SMALL: Final = 0.5
"""Below this, `log1p` and `expm1` are corrected; above, the plain form loses nothing."""


def exact_translations() -> Mapping[Any, Callable[..., Any]]:
    """Return the translation of each function, for torch's exporter."""
    aten = torch.ops.aten
    return {
        aten.log_sigmoid.default: _log_sigmoid,
        aten.logaddexp.default: _logaddexp,
        aten.logaddexp2.default: _logaddexp2,
        aten.log1p.default: _log1p,
        aten.expm1.default: _expm1,
        aten.scatter.src: _scatter,
        aten.scatter_add.default: _scatter_add,
        aten.scatter_reduce.two: _scatter_reduce,
        aten.scaled_dot_product_attention.default: _attention,
        aten.squeeze.dim: _squeeze,
        aten.squeeze.dims: _squeeze,
        aten._upsample_bilinear2d_aa.default: _smooth_linear,  # noqa: SLF001 (torch's own name)
        aten._upsample_bicubic2d_aa.default: _smooth_cubic,  # noqa: SLF001 (as above)
    }


def _number(value: float, like: Any) -> Any:
    return op.CastLike(op.Constant(value_float=value), like)


def _log_sigmoid(self: Any) -> Any:
    return op.Sub(op.Min(self, _number(0.0, self)), _excess(op.Abs(self)))


def _logaddexp(self: Any, other: Any) -> Any:
    return op.Add(op.Max(self, other), _excess(_distance(self, other)))


def _logaddexp2(self: Any, other: Any) -> Any:
    unit = _number(math.log(2), self)
    excess = _excess(op.Mul(_distance(self, other), unit))
    return op.Add(op.Max(self, other), op.Div(excess, unit))


def _excess(distance: Any) -> Any:
    """Return `log(1 + exp(-distance))`, the part of the smaller term in the logarithm of a sum.

    ONNX Runtime has no Softplus of float64.
    """
    return op.Log(op.Add(op.Exp(op.Neg(distance)), _number(1.0, distance)))


def _distance(self: Any, other: Any) -> Any:
    """Return the distance between two numbers; 0 for two equal infinities."""
    return op.Where(op.Equal(self, other), _number(0.0, self), op.Abs(op.Sub(self, other)))


def _log1p(self: Any) -> Any:
    """Return the logarithm of `1 + self`, corrected for the rounding of the sum.

    Source: Goldberg, What every computer scientist should know about floating-point arithmetic
    (1991), theorem 4.
    """
    one = _number(1.0, self)
    total = op.Add(self, one)
    plain = op.Log(total)
    corrected = op.Div(op.Mul(self, plain), op.Sub(total, one))
    return _where_small(self, op.Where(op.Equal(total, one), self, corrected), plain)


def _expm1(self: Any) -> Any:
    """Return `exp(self) - 1`, corrected for the rounding of the difference.

    Source: Higham, Accuracy and Stability of Numerical Algorithms (2002), section 1.14.1.
    """
    one = _number(1.0, self)
    power = op.Exp(self)
    plain = op.Sub(power, one)
    corrected = op.Div(op.Mul(plain, self), op.Log(power))
    return _where_small(self, op.Where(op.Equal(power, one), self, corrected), plain)


def _where_small(self: Any, small: Any, large: Any) -> Any:
    return op.Where(op.Less(op.Abs(self), _number(_SMALL, self)), small, large)


def _scatter(self: Any, dim: int, index: Any, src: Any) -> Any:
    return _scattered(self, dim, index, src, "none")


def _scatter_add(self: Any, dim: int, index: Any, src: Any) -> Any:
    return _scattered(self, dim, index, src, "add")


def _scatter_reduce(
    self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True
) -> Any:
    if reduce != "mean" or _is_scalar(self):
        part = _part(src, index)
        return core.aten_scatter_reduce(self, dim, index, part, reduce, include_self=include_self)
    one = _number(1.0, self)
    zeros = op.Expand(_number(0.0, self), op.Shape(self))
    ones = op.Expand(one, op.Shape(index))
    counts = op.ScatterElements(zeros, index, ones, axis=dim, reduction="add")
    if include_self:
        return op.Div(_scattered(self, dim, index, src, "add"), op.Add(counts, one))
    means = op.Div(_scattered(zeros, dim, index, src, "add"), op.Max(counts, one))
    return op.Where(op.Less(counts, one), self, means)


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, *others: Any, **named: Any
) -> Any:
    if attn_mask is None:
        return nn.aten_scaled_dot_product_attention(query, key, value, None, *others, **named)
    zero = _number(0.0, query)
    if attn_mask.dtype == ir.DataType.BOOL:
        attn_mask = op.Where(attn_mask, zero, _number(-math.inf, query))
        attn_mask.dtype = query.dtype
    result = nn.aten_scaled_dot_product_attention(query, key, value, attn_mask, *others, **named)
    return op.Where(op.IsNaN(result), zero, result)


def _squeeze(self: Any, dim: int | Sequence[int]) -> Any:
    axes = [dim] if isinstance(dim, int) else dim
    gone = [one for one in axes if len(self.shape) and self.shape[one] == 1]
    return op.Squeeze(self, op.Constant(value_ints=gone)) if gone else op.Identity(self)


def _smooth_linear(self: Any, *how: Any) -> Any:
    return _smooth(nn.aten__upsample_bilinear2d_aa, self, *how, mode="linear")


def _smooth_cubic(self: Any, *how: Any) -> Any:
    # Keys's coefficient, which torch uses for antialiasing (`UpSampleKernel.cpp`)
    return _smooth(nn.aten__upsample_bicubic2d_aa, self, *how, mode="cubic", cubic_coeff_a=-0.5)


def _smooth(
    by_sizes: Callable[..., Any],
    self: Any,
    output_size: Any,
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
    **kernel: Any,
) -> Any:
    if scales_h is None or scales_w is None or align_corners:
        return by_sizes(self, output_size, align_corners)
    scales = op.Constant(value_floats=[1.0, 1.0, scales_h, scales_w])
    return op.Resize(self, None, scales, None, antialias=1, exclude_outside=1, **kernel)


def _scattered(self: Any, dim: int, index: Any, src: Any, reduction: str) -> Any:
    if _is_scalar(self):
        flat = op.Constant(value_ints=[-1])
        whole = (op.Reshape(one, flat) for one in (self, index, src))
        return op.Squeeze(op.ScatterElements(*whole, axis=0, reduction=reduction))
    return op.ScatterElements(self, index, _part(src, index), axis=dim, reduction=reduction)


def _is_scalar(value: Any) -> bool:
    return value.shape is not None and len(value.shape) == 0


def _part(src: Any, index: Any) -> Any:
    """Return the leading part of `src` that has the shape of `index`."""
    if _is_scalar(src) or tuple(src.shape) == tuple(index.shape):
        return src
    axes = range(len(src.shape))
    starts = op.Constant(value_ints=[0 for _ in axes])
    return op.Slice(src, starts, op.Shape(index), op.Constant(value_ints=list(axes)))

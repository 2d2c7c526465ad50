"""Replace torch functions during an export by forms that the exporter supports."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from nncfx.export.capture.einsum_as_matmul import einsum

# ruff: noqa: A002, ANN401 (torch's own signatures)

ATTENTION_AXES: Final = 4
"""Number of axes that torch's exporter accepts: batch, heads, length, features."""


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *others: Any,
    **named: Any,
) -> Tensor:
    """Compute `scaled_dot_product_attention` on tensors (batch, heads, length, features).

    torch takes any number of axes before length and features, its exporter (2.13) exactly two. The
    axes before the heads are merged, or missing axes added, and the result is reshaped back.
    """
    operands = (query, key, value)
    if all(one.ndim == ATTENTION_AXES for one in operands):
        return scaled_dot_product_attention(query, key, value, attn_mask, *others, **named)
    ahead = torch.broadcast_shapes(  # type: ignore[no-untyped-call]  # torch leaves it open
        *(one.shape[:-3] for one in operands)
    )
    query, key, value = (_four_axes(one, ahead) for one in operands)
    if attn_mask is not None and attn_mask.ndim >= ATTENTION_AXES:
        attn_mask = _four_axes(attn_mask, ahead)
    result = scaled_dot_product_attention(query, key, value, attn_mask, *others, **named)
    shape = (*ahead, *result.shape[1:])
    return result.reshape(shape[len(shape) - max(one.ndim for one in operands) :])


def _four_axes(x: Tensor, ahead: torch.Size) -> Tensor:
    """Return `x` with the axes `ahead` of the last three merged into one."""
    if x.ndim < ATTENTION_AXES:
        return x.reshape((1,) * (ATTENTION_AXES - x.ndim) + x.shape)
    return x.expand(*ahead, *x.shape[-3:]).flatten(0, -ATTENTION_AXES)


def _embedding_bag(indices: Tensor, weight: Tensor, *others: Any, **named: Any) -> Tensor:
    """Look up bags of equal size, one per row of `indices`, and reduce them, in two steps."""
    given = inspect.signature(F.embedding_bag).bind(indices, weight, *others, **named).arguments
    is_more = any(given.get(name) is not None for name in ("max_norm", "padding_idx"))
    if indices.ndim != _BAGS_NDIM or is_more:
        return F.embedding_bag(indices, weight, *others, **named)
    rows = F.embedding(indices, weight)
    if given.get("per_sample_weights") is not None:
        rows = rows * given["per_sample_weights"].unsqueeze(-1)
    return _REDUCED[given.get("mode", "mean")](rows, 1)


def _running(
    x: Tensor, dim: int, join: Callable[[Tensor, Tensor], Tensor], neutral: float
) -> Tensor:
    """Return the running reduction along an axis, in steps that double (Hillis and Steele).

    The exporter refuses an axis of open length, because the number of steps is unknown.
    """
    if x.ndim == 0:
        return x.clone()
    step = 1
    while step < x.shape[dim]:
        before = torch.full_like(x.narrow(dim, 0, step), neutral)
        shifted = torch.cat([before, x.narrow(dim, 0, x.shape[dim] - step)], dim)
        x = join(x, shifted)
        step *= 2
    return x


def _cumprod(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    is_number = input.is_floating_point() or input.is_complex()
    numbers = input.to(dtype or (input.dtype if is_number else torch.int64))
    return _running(numbers, dim, torch.mul, 1)


def _logcumsumexp(input: Tensor, dim: int) -> Tensor:
    return _running(input, dim, torch.logaddexp, -math.inf)


def _cross_entropy(*given: Any, **named: Any) -> Tensor:
    """Compute `cross_entropy` with label smoothing or class probabilities from logarithms.

    ONNX's operator supports neither, nor logits without a batch.
    """
    bound = inspect.signature(F.cross_entropy).bind(*given, **named)
    bound.apply_defaults()
    found = bound.arguments
    logits, target, smoothing = found["input"], found["target"], found["label_smoothing"]
    is_class = not target.is_floating_point()
    is_legacy = found["size_average"] is not None or found["reduce"] is not None
    if is_legacy or (is_class and not smoothing and logits.ndim > 1):
        return F.cross_entropy(*given, **named)
    axis, reduction = min(logits.ndim - 1, 1), found["reduction"]
    classes, counts = logits.shape[axis], None
    logarithms = F.log_softmax(logits, axis)
    if found["weight"] is not None:
        shape = [-1 if one == axis else 1 for one in range(logits.ndim)]
        logarithms = logarithms * found["weight"].view(shape)
    if is_class:
        is_counted = (target != found["ignore_index"]).to(logits.dtype)
        chosen = torch.where(target != found["ignore_index"], target, 0).unsqueeze(axis)
        hits = (1 - smoothing) * logarithms.gather(axis, chosen).squeeze(axis)
        losses: Tensor = -(hits + smoothing / classes * logarithms.sum(axis)) * is_counted
        counts = is_counted
        if found["weight"] is not None:
            own = found["weight"].index_select(0, chosen.flatten())
            counts = counts * own.reshape(target.shape)
    else:
        losses = -(logarithms * (target * (1 - smoothing) + smoothing / classes)).sum(axis)
    if reduction == "none":
        return losses
    total: Tensor = losses.sum()
    if reduction == "mean":
        total = total / (losses.numel() if counts is None else counts.sum())
    return total


def _cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """Compute the distances between all rows of `x1`, * x P x M, and of `x2`, * x R x M."""
    is_long = max(x1.shape[-2], x2.shape[-2]) > _FEW_ROWS
    by_product = (
        is_long if compute_mode.endswith("if_necessary") else compute_mode.startswith("use")
    )
    if p == 2 and by_product:  # noqa: PLR2004 (Euclid's)
        squares = x1.square().sum(-1, keepdim=True) + x2.square().sum(-1).unsqueeze(-2)
        return (squares - 2 * x1 @ x2.transpose(-1, -2)).clamp(min=0).sqrt()
    away = (x1.unsqueeze(-2) - x2.unsqueeze(-3)).abs()
    if p == 0:
        return (away != 0).to(away.dtype).sum(-1)
    if math.isinf(p):
        return away.amax(-1)
    return away.sum(-1) if p == 1 else away.pow(p).sum(-1).pow(1 / p)


def _hypot(input: Tensor, other: Tensor) -> Tensor:
    return (input.square() + other.square()).sqrt()


def _adaptive_max_pool(
    axes: int,
    pool: Callable[..., Any],
    input: Tensor,
    output_size: int | Sequence[int | None],
    return_indices: bool = False,
) -> Any:
    """Compute `pool` as the maxima of windows, one of its `axes` after the other."""
    sizes = [output_size] * axes if isinstance(output_size, int) else output_size
    if return_indices or set(sizes) == {1}:  # ONNX has a form for these
        return pool(input, output_size, return_indices)
    x = input
    for axis, size in zip(range(-axes, 0), sizes, strict=True):
        length = x.shape[axis]
        if size is None or size == length:
            continue
        windows = ((i * length // size, -(-(i + 1) * length // size)) for i in range(size))
        parts = [x.narrow(axis, at, end - at) for at, end in windows]
        x = torch.cat([one.amax(axis, keepdim=True) for one in parts], axis)
    return x


_DATA: Any = Tensor.data  # a descriptor
_FEW_ROWS: Final = 25
"""Up to this many rows, torch computes distances without a matrix product."""
_BAGS_NDIM: Final = 2
_REDUCED: Final[Mapping[str, Callable[..., Tensor]]] = MappingProxyType(
    {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}
)
_FORMS: Final[Mapping[Callable[..., Any], Callable[..., Any]]] = MappingProxyType(
    {
        scaled_dot_product_attention: _attention,
        torch.einsum: einsum,
        F.embedding_bag: _embedding_bag,
        F.cross_entropy: _cross_entropy,
        torch.cdist: _cdist,
        _DATA.__get__: Tensor.detach,  # torch.export takes the value of `data` for a constant
        **dict.fromkeys((torch.hypot, Tensor.hypot), _hypot),
        **{
            pool: partial(_adaptive_max_pool, axes, pool)
            for axes, pool in enumerate(
                (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d), start=1
            )
        },
        **dict.fromkeys((torch.cumprod, Tensor.cumprod), _cumprod),
        **dict.fromkeys((torch.logcumsumexp, Tensor.logcumsumexp), _logcumsumexp),
    }
)


class ExportableCalls(TorchFunctionMode):
    """Replaces some functions by equivalents; hooks of a wrapped model see the originals."""

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _FORMS.get(func, func)(*args, **(kwargs or {}))

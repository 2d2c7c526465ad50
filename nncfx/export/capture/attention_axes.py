"""Give attention the four axes that torch's exporter has a form for."""

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["ATTENTION_AXES", "attention"]

ATTENTION_AXES: Final = 4
"""How many axes torch's exporter takes: batch, heads, length, features."""


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *others: Any,  # noqa: ANN401 (torch's own)
    **named: Any,  # noqa: ANN401 (torch's own)
) -> Tensor:
    """Compute `scaled_dot_product_attention` on tensors (batch, heads, length, features).

    torch takes any number of axes before length and features, its exporter (2.13) exactly two. The
    axes before the heads become one, and missing ones are added; the result has its own again.
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
    """Return `x` with axes `ahead` of the last three as one."""
    if x.ndim < ATTENTION_AXES:
        return x.reshape((1,) * (ATTENTION_AXES - x.ndim) + x.shape)
    return x.expand(*ahead, *x.shape[-3:]).flatten(0, -ATTENTION_AXES)

"""Give attention the four axes that torch's exporter has a form for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from typing_extensions import override

__all__ = ["FourAxes"]

_AXES: Final = 4


class FourAxes(TorchFunctionMode):
    """Compute `scaled_dot_product_attention` on tensors (batch, heads, length, features).

    torch takes any number of axes before length and features, its exporter (2.13) exactly two. The
    axes before the heads become one, and missing ones are added; the result has its own again.
    """

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func is functional.scaled_dot_product_attention:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            return _attention(**dict(zip(names, args, strict=False)), **given)
        return func(*args, **given)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    **others: Any,  # noqa: ANN401 (torch's own)
) -> Tensor:
    operands = (query, key, value)
    if any(one.ndim != _AXES for one in operands):
        ahead = torch.broadcast_shapes(  # type: ignore[no-untyped-call]  # torch leaves it open
            *(one.shape[:-3] for one in operands)
        )
        query, key, value = (_four_axes(one, ahead) for one in operands)
        if attn_mask is not None and attn_mask.ndim >= _AXES:
            attn_mask = _four_axes(attn_mask, ahead)
        result = functional.scaled_dot_product_attention(query, key, value, attn_mask, **others)
        axes = max(one.ndim for one in operands)
        shape = (*ahead, *result.shape[1:])
        return result.reshape(shape[len(shape) - axes :])
    return functional.scaled_dot_product_attention(query, key, value, attn_mask, **others)


def _four_axes(x: Tensor, ahead: torch.Size) -> Tensor:
    """Return `x` with axes `ahead` of the last three as one."""
    if x.ndim < _AXES:
        return x.reshape((1,) * (_AXES - x.ndim) + x.shape)
    return x.expand(*ahead, *x.shape[-3:]).flatten(0, -_AXES)

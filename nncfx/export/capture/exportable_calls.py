"""Call torch functions, while a model is exported, in the form that the exporter writes well."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from nncfx.export.capture.attention_axes import attention
from nncfx.export.capture.einsum_as_matmul import einsum

__all__ = ["ExportableCalls", "unchecked_distributions"]


def _embedding_bag(indices: Tensor, weight: Tensor, *others: Any, **named: Any) -> Tensor:  # noqa: ANN401 (torch's own)
    """Look up bags of equal sizes, a row of `indices` each, and reduce them, in two steps."""
    given = inspect.signature(F.embedding_bag).bind(indices, weight, *others, **named).arguments
    is_more = any(given.get(name) is not None for name in ("max_norm", "padding_idx"))
    if indices.ndim != _BAGS_NDIM or is_more:
        return F.embedding_bag(indices, weight, *others, **named)
    rows = F.embedding(indices, weight)
    if given.get("per_sample_weights") is not None:
        rows = rows * given["per_sample_weights"].unsqueeze(-1)
    return _REDUCED[given.get("mode", "mean")](rows, 1)


_BAGS_NDIM: Final = 2
_REDUCED: Final[Mapping[str, Callable[..., Tensor]]] = MappingProxyType(
    {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}
)
_FORMS: Final[Mapping[Callable[..., Any], Callable[..., Any]]] = MappingProxyType(
    {
        scaled_dot_product_attention: attention,
        torch.einsum: einsum,
        F.embedding_bag: _embedding_bag,
    }
)


class ExportableCalls(TorchFunctionMode):
    """Replaces some functions by equal ones; hooks of a wrapped model see the originals."""

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return _FORMS.get(func, func)(*args, **(kwargs or {}))


@contextlib.contextmanager
def unchecked_distributions() -> Iterator[None]:
    """Let distributions, as policies return them, not look at the values of their parameters."""
    before = Distribution._validate_args  # noqa: SLF001 (torch's setter does not tell it)
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)

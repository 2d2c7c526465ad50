"""Call torch functions, while a model is exported, in the form that the exporter writes well."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from torch.distributions import Distribution
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from nncfx.export.capture.attention_axes import attention
from nncfx.export.capture.einsum_as_matmul import einsum

__all__ = ["ExportableCalls", "unchecked_distributions"]

_FORMS: Final[Mapping[Callable[..., Any], Callable[..., Any]]] = MappingProxyType(
    {scaled_dot_product_attention: attention, torch.einsum: einsum}
)


class ExportableCalls(TorchFunctionMode):
    """Replaces attention and einsums by equal ones; hooks of a wrapped model see the originals."""

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

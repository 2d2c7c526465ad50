"""Register shape functions that torch needs to export fake-quantize with dynamic axes."""

from typing import Final

import torch
from torch import Tensor

_WITH_MASK: Final = (
    "fake_quantize_per_tensor_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "fake_quantize_per_channel_affine_cachemask",
)
_LEARNABLE: Final = (
    "_fake_quantize_learnable_per_tensor_affine",
    "_fake_quantize_learnable_per_channel_affine",
)


_kept: Final[list[torch.library.Library]] = []
"""Registrations last only while their library is alive."""


def know_shapes() -> bool:
    """Register the output shapes of torch's fake-quantize operators; return True.

    Without them, torch 2.13 runs the operators to find out, and cannot export them with dynamic
    axes. Registrations of other packages are kept.
    """
    if _kept:
        return True
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]  # torch gives no types
    for names, shapes in ((_WITH_MASK, _values_and_mask), (_LEARNABLE, _values)):
        for name in names:
            has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001 (the only way to ask)
            if not has_kernel(f"aten::{name}", "Meta"):
                library.impl(name, shapes, "Meta")  # type: ignore[no-untyped-call]  # torch gives no types
    _kept.append(library)
    return True


# same as torch.compiler.assume_constant_result, which would import all of Dynamo (1.2 s)
know_shapes._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001


def _values_and_mask(x: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


def _values(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x)

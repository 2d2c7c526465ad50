"""What torch lacks to export its own fake-quantize operators where an axis is open."""

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
"""What is registered lasts as long as its library."""


def know_shapes() -> bool:
    """Tell torch, from now on, what shapes its fake-quantize operators return; return True.

    Without, torch 2.13 runs them to find out, and cannot export them where an axis is open. What
    another package has told already stays.
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


# as torch.compiler.assume_constant_result does, which imports all of Dynamo for it: 1.2 s
know_shapes._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001


def _values_and_mask(x: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


def _values(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x)

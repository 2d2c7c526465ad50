"""A torch operator that multiplies by packed weights with compiled loops."""

from typing import Any, Final

import torch
from torch import Tensor

from nncfx.quantization.packing.parts import HAS_BLAS, CodedWeight, has_threads
from nncfx.storage.compiled import IS_COMPILED

_FEW: Final = 4
"""Most input rows that are multiplied while decoding instead of by BLAS."""

_WORTH_COMPILING: Final = 1 << 16
_MOST_THREADS: Final = 4
"""With more torch threads, torch's own loops decode faster than compiled ones on one thread."""


def is_served(x: Tensor, codes: Tensor) -> bool:
    """Return whether `packed_product` can be used and is faster: float32 on a CPU, with numba.

    It is not used during export, because other programs do not know the operator.
    """
    return (
        IS_COMPILED
        and x.dtype == torch.float32
        and x.device.type == codes.device.type == "cpu"
        and codes.numel() >= _WORTH_COMPILING
        and _has_all_threads()
        and (HAS_BLAS or x.numel() <= _FEW * x.shape[-1])
        and not (torch.compiler.is_exporting() or torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]
    )


def _has_all_threads() -> bool:
    # compiled programs have no other fast path (their own loops take four times as long as
    # floats), and cannot query the number of threads
    return (
        torch.compiler.is_compiling() or has_threads() or torch.get_num_threads() <= _MOST_THREADS
    )


def packed_product(  # noqa: PLR0913 (as the operator has them)
    x: Tensor,
    codes: Tensor,
    scale: Tensor,
    zero_point: Tensor | None,
    group: int,
    shift: int,
    *,
    is_packed: bool,
) -> Tensor:
    """Return `x @ weight.T`, n x o, in float32.

    Args:
        x: n x i.
        codes: i x o integers of a byte; or half of i, rounded up to whole groups, x o, with the
            other inputs in the high halves.
        scale: g x o.
        zero_point: g x o, or packed as `codes`.
        group: Inputs that share a scale; i if each output has one scale.
        shift: The code of 0 without `zero_point`.
        is_packed: Whether two codes share a byte.
    """
    found: Tensor = torch.ops.nncfx.packed_product(
        x, codes, scale, zero_point, group, shift, is_packed
    )
    return found


def _product(  # noqa: PLR0913, PLR0917 (as the operator has them)
    x: Tensor,
    codes: Tensor,
    scale: Tensor,
    zero_point: Tensor | None,
    group: int,
    shift: int,
    is_packed: bool,
) -> Tensor:
    x = x.detach().contiguous()
    count, outputs = len(x), codes.shape[1]
    # these variables keep the tensors alive while the loops read them
    codes, scale = codes.contiguous(), scale.float().contiguous()
    zeros = None if zero_point is None else zero_point.contiguous()
    weight = CodedWeight(codes, scale, zeros, shift=shift, group=group, is_packed=is_packed)
    if count > _FEW and HAS_BLAS:
        found = x.new_empty(count, outputs)
        weight.multiply_tiles(x, found)
    else:
        found = x.new_zeros(count, outputs)
        weight.multiply(x, found)
    return found


_LIBRARY: Any = torch.library.Library("nncfx", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(
    "packed_product(Tensor x, Tensor codes, Tensor scale, Tensor? zero_point, int group, "
    "int shift, bool is_packed) -> Tensor"
)
_LIBRARY.impl("packed_product", _product, "CPU")


@torch.library.register_fake("nncfx::packed_product", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _shape_of_product(x: Tensor, codes: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape[0], codes.shape[1])

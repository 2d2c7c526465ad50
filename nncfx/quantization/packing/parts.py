"""Products in parts, which the threads of torch take in turn until none is left.

Threads of anyone else would wait for cores on which those of torch's last product still spin. So
a compiled loop is handed to the OpenMP that torch computes with. Where none is found, and in a
forked child, which lacks its parent's threads, the caller takes all parts.

A thread multiplies the floats that it has decoded by torch's BLAS, while they are in its own
cache. Inside of OpenMP's threads BLAS computes on one.
"""

import ctypes
import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

Native: TypeAlias = Any
"""A C function of numba's or of a library; it has no types."""

_PROCESS: Final = os.getpid()

_WIDEST: Final = 2048
"""Outputs of a part: their codes are read without a break, and their sums stay in a cache."""

_TILE: Final = (256, 1024)
"""Inputs and outputs that are decoded at once, at most: a core's second cache holds them."""

_LINE: Final = 64
"""Bytes of the cache's lines: threads that write to one take it from each other."""


def has_threads() -> bool:
    """Return whether parts are taken by as many threads as torch has."""
    return _parallel() is not None and os.getpid() == _PROCESS


def _parallel() -> Native | None:
    """Return `GOMP_parallel` of the library that torch has loaded; LLVM's has it as well."""
    return _of_torch("torch_global_deps", "GOMP_parallel")


@functools.cache
def _of_torch(library: str, function: str) -> Native | None:
    suffix = "dylib" if sys.platform == "darwin" else "so"
    path = Path(torch.__file__).parent / "lib" / f"lib{library}.{suffix}"
    try:
        return getattr(ctypes.CDLL(str(path)), function)
    except (OSError, AttributeError):
        return None


_SGEMM: Final[Native] = _of_torch("torch_cpu", "sgemm_")

HAS_BLAS: Final = _SGEMM is not None
"""Whether `CodedWeight.multiply_tiles` finds the BLAS of torch."""


class CodedWeight:
    """A weight's codes and grid as the loops read them.

    Attributes:
        threads: That take the parts.
    """

    def __init__(
        self,
        codes: Tensor,
        scale: Tensor,
        zeros: Tensor | None,
        *,
        shift: int,
        group: int,
        is_packed: bool,
    ) -> None:
        """Take contiguous tensors on a CPU, which have to outlive this.

        Args:
            codes: i x o integers of a byte, or two in each.
            scale: g x o, float32.
            zeros: g x o, packed as the codes.
            shift: What stands for 0 without `zeros`.
            group: Inputs that share a scale.
            is_packed: Whether two codes share a byte.
        """
        # numba takes half a second to import
        from nncfx.quantization.packing import kernels

        self._loops = kernels
        kind = kernels.UINT8 if codes.dtype == torch.uint8 else kernels.INT8
        self._sizes = (ctypes.c_int64 * kernels.SIZES)(
            0,
            0,
            0,
            kernels.NIBBLES if is_packed else kind,
            *codes.shape,
            len(scale),
            0 if zeros is None else len(zeros),
            shift,
            group,
        )
        self._places = (ctypes.c_void_p * 7)(
            ctypes.addressof(self._sizes),
            codes.data_ptr(),
            scale.data_ptr(),
            None if zeros is None else zeros.data_ptr(),
        )
        self.threads = torch.get_num_threads() if has_threads() else 1

    def multiply(self, x: Tensor, y: Tensor) -> None:
        """Add `x @ weight.T` to `y`, n x o, as codes are decoded; both are contiguous."""
        self._lay_out((*x.shape, 0, 0), x, y)
        self._run(self._loops.multiply_parts, y.shape[1], _WIDEST)

    def multiply_tiles(self, x: Tensor, y: Tensor) -> None:
        """Let `y`, n x o, be `x @ weight.T`; many rows pay for tiles. Both are contiguous."""
        self._lay_out((*x.shape, _even(x.shape[1], _TILE[0]), 0), x, y)
        self._places[6] = ctypes.cast(_SGEMM, ctypes.c_void_p)
        self._run(self._loops.multiply_tiles, y.shape[1], _TILE[1])

    def _lay_out(self, sizes: Sequence[int], *tensors: Tensor) -> None:
        self._sizes[10:] = list(sizes)
        for place, one in enumerate(tensors, 4):
            self._places[place] = one.data_ptr()

    def _run(self, loop: Native, outputs: int, widest: int) -> None:
        lines = -(-outputs // _LINE)
        step = _even(-(-lines // self.threads), widest // _LINE) * _LINE
        self._sizes[:3] = [0, step, outputs]
        threads = min(self.threads, -(-outputs // step))
        parallel = _parallel() if threads > 1 else None
        if parallel is None:
            loop.ctypes(self._places)
        else:
            parallel(ctypes.c_void_p(loop.address), self._places, threads, 0)


def _even(count: int, most: int) -> int:
    """Return the size, at most `most`, of the fewest parts of `count` that are about equal."""
    return -(-count // -(-count // most))

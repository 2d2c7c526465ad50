"""Compute products in parts that the threads of torch take in turn.

Other threads would wait for cores on which torch's threads still spin after their last product,
so compiled loops run on the OpenMP that torch uses. If it is not found, and in a forked child,
which lacks its parent's threads, the caller computes all parts.

A thread multiplies decoded floats by torch's BLAS while they are in its own cache. Inside OpenMP
threads BLAS is single-threaded.
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
"""A C function of numba or of a library; it has no types."""

_PROCESS: Final = os.getpid()

_WIDEST: Final = 2048
"""Most outputs of a part: their codes are read contiguously, and their sums fit into a cache."""

_TILE: Final = (256, 1024)
"""Most inputs and outputs that are decoded at once; they fit into a core's L2 cache."""

_LINE: Final = 64
"""Bytes of a cache line; threads should not write to the same line."""


def has_threads() -> bool:
    """Return whether parts run on all threads of torch."""
    return _parallel() is not None and os.getpid() == _PROCESS


def _parallel() -> Native | None:
    """Return `GOMP_parallel` of the OpenMP library that torch loaded; LLVM's has it as well."""
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
"""Whether torch's BLAS is available for `CodedWeight.multiply_tiles`."""


class CodedWeight:
    """The codes and the grid of a weight in the form that the loops read.

    Attributes:
        threads: Number of threads that compute parts.
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
        """Refer to contiguous tensors on a CPU, which must outlive this object.

        Args:
            codes: i x o integers of a byte, or two per byte.
            scale: g x o, float32.
            zeros: g x o, packed as the codes.
            shift: The code of 0 without `zeros`.
            group: Inputs that share a scale.
            is_packed: Whether two codes share a byte.
        """
        # importing numba takes half a second
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
        """Add `x @ weight.T` to `y`, n x o, while decoding; `x` and `y` are contiguous."""
        self._lay_out((*x.shape, 0, 0), x, y)
        self._run(self._loops.multiply_parts, y.shape[1], _WIDEST)

    def multiply_tiles(self, x: Tensor, y: Tensor) -> None:
        """Set `y`, n x o, to `x @ weight.T` by tiles, for many rows; both are contiguous."""
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
    """Return the size of parts if `count` is divided evenly into the fewest of at most `most`."""
    return -(-count // -(-count // most))

"""Products and tiles in parts, which the threads of torch take in turn until none is left.

Threads of anyone else would wait for cores on which those of torch's last product still spin. So
a compiled loop is handed to the OpenMP that torch computes with. Where none is found, and in a
forked child, which lacks its parent's threads, the caller takes all parts.
"""

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

__all__ = ["CodedWeight", "has_threads"]

_CFunction: TypeAlias = Any
"""numba's; it has no types."""

_PROCESS: Final = os.getpid()

_WIDEST: Final = 2048
"""Outputs of a part: their codes are read without a break, and their sums stay in a cache."""

_LINE: Final = 64
"""Bytes of the cache's lines: threads that write to one take it from each other."""


def has_threads() -> bool:
    """Return whether parts are taken by as many threads as torch has."""
    return _parallel() is not None and os.getpid() == _PROCESS


@functools.cache
def _parallel() -> Callable[..., object] | None:
    """Return `GOMP_parallel` of the library that torch has loaded; LLVM's has it as well."""
    suffix = "dylib" if sys.platform == "darwin" else "so"
    library = Path(torch.__file__).parent / "lib" / f"libtorch_global_deps.{suffix}"
    try:
        found: Callable[..., object] = ctypes.CDLL(str(library)).GOMP_parallel
    except (OSError, AttributeError):
        return None
    return found


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
        self._places = (ctypes.c_void_p * 6)(
            ctypes.addressof(self._sizes),
            codes.data_ptr(),
            scale.data_ptr(),
            None if zeros is None else zeros.data_ptr(),
        )
        self.threads = torch.get_num_threads() if has_threads() else 1

    def multiply(self, x: Tensor, y: Tensor) -> None:
        """Add `x @ weight.T` to `y`, n x o; both are contiguous."""
        step = min(self._share(y.shape[1], _LINE), _WIDEST)
        self._lay_out((*x.shape, 0, 0), x, y)
        self._run(self._loops.multiply_parts, y.shape[1], step)

    def decode(self, start: int, left: int, tile: Tensor) -> None:
        """Fill a `tile`, of contiguous rows, with the numbers from an input and output on."""
        self._lay_out((start, left, tile.shape[1], tile.stride(0)), tile)
        self._run(self._loops.decode_parts, len(tile), self._share(len(tile), 1))

    def _lay_out(self, sizes: Sequence[int], *tensors: Tensor) -> None:
        self._sizes[10:] = list(sizes)
        for place, one in enumerate(tensors, 4):
            self._places[place] = one.data_ptr()

    def _share(self, count: int, unit: int) -> int:
        """Return a thread's part of `count`, in multiples of `unit`."""
        return -(-count // (self.threads * unit)) * unit

    def _run(self, loop: _CFunction, count: int, step: int) -> None:
        self._sizes[:3] = [0, step, count]
        threads = min(self.threads, -(-count // step))
        parallel = _parallel() if threads > 1 else None
        if parallel is None:
            loop.ctypes(self._places)
        else:
            parallel(ctypes.c_void_p(loop.address), self._places, threads, 0)

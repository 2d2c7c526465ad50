"""Results that have a shape but no values, all in the same memory."""

import math
from collections.abc import Sequence
from typing import Final, final

import torch

from nncfx.tracing.calls.tensor_table import TensorTable

_SHARED_FROM: Final = 2**14
"""Elements below which a tensor gets memory of its own, which costs as little."""


@final
class UncomputedResults:
    """Tensors in place of results; large ones share memory, which is zeroed only once.

    Writing to one changes the others, so they may hold any values, and nothing may read them.
    torch refuses some writes in place to a tensor that overlaps with an operand of another shape.
    """

    def __init__(self, *, is_shared: bool) -> None:
        """Create no results yet.

        Args:
            is_shared: Whether large results share memory; else all stay zeros, which can be read.
        """
        self._is_shared = is_shared
        self._tensors = TensorTable[bool]()
        self._memory: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}

    def __contains__(self, tensor: torch.Tensor) -> bool:
        """Return whether `tensor` was returned by `new` or `like`."""
        return tensor in self._tensors

    def new(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return a new contiguous tensor, which is no view of another."""
        size = math.prod(shape)
        if self._is_shared and size >= _SHARED_FROM:
            memory = self._memory_for(size, dtype, device)
            made = memory.new_empty(0)
            made.set_(memory.untyped_storage(), 0, tuple(shape))  # type: ignore[call-overload]  # strides are optional
        else:
            made = torch.zeros(shape, dtype=dtype, device=device)
        self._tensors[made] = True
        return made

    def on(self, device: torch.device, shape: torch.Tensor) -> torch.Tensor:
        """Return a new tensor on `device` with the shape, strides and dtype of one on "meta"."""
        if shape.is_contiguous() or not shape.numel():
            return self.new(shape.shape, shape.dtype, device)
        made = torch.empty_strided(shape.shape, shape.stride(), dtype=shape.dtype, device=device)
        self._tensors[made] = True
        return made.zero_()

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a new tensor like `tensor`, in the same memory if that has no values."""
        # `.data` is not a view, so it is a new tensor for autograd and for in-place tracking
        made = tensor.data if tensor in self else torch.zeros_like(tensor)
        self._tensors[made] = True
        return made

    def _memory_for(self, size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        memory = self._memory.get((dtype, device))
        if memory is None or memory.numel() < size:
            memory = torch.zeros(size, dtype=dtype, device=device)
            self._memory[dtype, device] = memory
        return memory

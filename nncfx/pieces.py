"""Splits large tensors into pieces that stay in the CPU cache between operations."""

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

__all__ = ["in_pieces"]

_PIECE: Final = 1 << 17
"""Entries per piece: allocating memory for a whole tensor costs more than computing it."""


def in_pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield tensors of one shape piece by piece, flat; whole for compilers and on accelerators.

    Pieces of contiguous tensors can be written to.

    >>> [len(one) for (one,) in in_pieces(torch.zeros(200_000))]
    [131072, 68928]
    """
    is_whole = torch.compiler.is_compiling() or not tensors[0].is_cpu
    size = max(1, tensors[0].numel()) if is_whole else _PIECE
    return zip(*(torch.split(one.reshape(-1), size) for one in tensors), strict=True)

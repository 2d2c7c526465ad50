"""Floats wide enough for sums."""

from typing import Final

import torch
from torch import Tensor

NARROW: Final = (torch.float16, torch.bfloat16)
"""16-bit floats: sums of float16 overflow at 65504, those of bfloat16 stop growing."""


def wide(x: Tensor) -> Tensor:
    """Return `x` in float32 if it is a float of 16 bits, else `x` itself.

    >>> wide(torch.tensor([60000.0, 60000.0], dtype=torch.float16)).sum()
    tensor(120000.)
    """
    return x.float() if x.dtype in NARROW else x

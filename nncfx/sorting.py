"""Sorting of values when indices are not needed."""

import torch
from torch import Tensor

__all__ = ["ascending"]


def ascending(values: Tensor) -> Tensor:
    """Return `values` sorted along their last axis, NaN last.

    numpy sorts with vector instructions and torch does not; torch also computes an index of 8
    bytes per value. For millions of floats on the CPU numpy takes a twentieth of the time.

    >>> ascending(torch.tensor([3.0, 1.0, 2.0], dtype=torch.bfloat16)).tolist()
    [1.0, 2.0, 3.0]
    """
    values = values.detach()
    if values.device.type != "cpu" or type(values) is not Tensor or not values.ndim:
        return values.sort().values
    if values.dtype is torch.bfloat16:  # numpy does not support it
        return ascending(values.float()).to(values.dtype)
    copied = values.clone(memory_format=torch.contiguous_format)
    copied.numpy().sort(axis=-1)
    return copied

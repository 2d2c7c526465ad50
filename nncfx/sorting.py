"""Sorted values, where their order is not asked for."""

import torch
from torch import Tensor

__all__ = ["ascending"]


def ascending(values: Tensor) -> Tensor:
    """Return `values` sorted along their last axis, NaN last.

    numpy sorts in the processor's vectors and torch does not, which also keeps an index of 8 bytes
    per value: for millions of floats in a CPU's memory that is a twentieth of the time.

    >>> ascending(torch.tensor([3.0, 1.0, 2.0], dtype=torch.bfloat16)).tolist()
    [1.0, 2.0, 3.0]
    """
    values = values.detach()
    if values.device.type != "cpu" or type(values) is not Tensor or not values.ndim:
        return values.sort().values
    if values.dtype is torch.bfloat16:  # which numpy has not
        return ascending(values.float()).to(values.dtype)
    copied = values.clone(memory_format=torch.contiguous_format)
    copied.numpy().sort(axis=-1)
    return copied

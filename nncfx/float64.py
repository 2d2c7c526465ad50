"""Double precision for devices without it, such as Apple's GPUs."""

import torch
from torch import Tensor

__all__ = ["float64_device", "in_float64"]


def in_float64(value: Tensor) -> Tensor:
    """Return `value` in float64 (complex128), on the CPU if its device has no such dtype."""
    wide = torch.complex128 if value.is_complex() else torch.float64
    return value.to(float64_device(value), wide)


def float64_device(of: Tensor) -> torch.device:
    """Return the device of a tensor, or the CPU if that device has no float64."""
    try:
        return of.new_empty(0, dtype=torch.float64).device
    except TypeError:  # raised for the "mps" device
        return torch.device("cpu")
